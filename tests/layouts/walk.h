// Walks many cases with living ranks: teams of the first, second, ... n ranks train side by side.
#pragma once

#include <string>
#include <vector>

#include "layouts/breaks.h"
#include "layouts/result.h"
#include "layouts/table.h"

namespace lockstep::layouts {

struct Job {
  Case one;
  Break rule = Break::none;  // done wrong on purpose
};

// What ranks make of a case, as far as they agree.
struct Walked : Job {
  Result result;
  std::vector<std::string> wrong;  // what ranks do not agree on
};
// Starts the ranks, once, and waits for them. Results are in the order of the jobs; in a rank of a later walk there are none.
std::vector<Walked> walk(const Table& table, const std::vector<Job>& jobs, int ranks = 8);

}  // namespace lockstep::layouts
