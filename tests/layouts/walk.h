// Walks many cases with eight living ranks: teams of the first, second, ... n ranks train side by side.
#pragma once

#include <string>
#include <vector>

#include "layouts/breaks.h"
#include "layouts/result.h"
#include "layouts/table.h"

namespace lockstep::layouts {

inline constexpr int ranks_there_are = 8;

struct Job {
  Case one;
  Break rule = Break::none;  // done wrong on purpose
};

// What ranks make of a case, as far as they agree.
struct Walked : Job {
  Result result;
  std::vector<std::string> wrong;  // what ranks do not agree on
};
// Starts the ranks, once, and waits for them. Results are in the order of the jobs.
std::vector<Walked> walk(const Table& table, const std::vector<Job>& jobs);

}  // namespace lockstep::layouts
