// Trains one case on some of the ranks that are there.
#pragma once

#include <string>

#include "layouts/breaks.h"
#include "layouts/result.h"
#include "layouts/table.h"
#include "rank/comm/comm.h"

namespace lockstep::layouts {

struct Seat {
  at::Device device;
  comm::Place place;
};

// Collective over the ranks of the place, in a world of their own. folder: with the data. rule: done wrong on purpose. What is thrown
// becomes the result's error.
RankResult run_case(const Table& table, const Case& one, Break rule, const std::string& folder, const Seat& seat);

}  // namespace lockstep::layouts
