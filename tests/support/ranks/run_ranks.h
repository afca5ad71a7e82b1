// Runs a function as N real processes that form a world, with a deadline; the parent gets each rank's numbers back.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "config/run_config.h"
#include "rank/comm/comm.h"

namespace lockstep::testing {

using RankFunction = std::function<std::vector<double>(comm::World& world)>;

struct RankOutcome {
  int exit_code = 0;  // negative: the signal
  std::vector<double> numbers;
  std::string log;
};

// Starts this test program again, once a rank, at the same place of the same test. Code before the call runs in ranks too.
// A rank fails by throwing or by a failed assertion; the first failing rank's log is printed first and the test fails.
std::vector<std::vector<double>> run_ranks(int ranks, config::Backend backend, const RankFunction& function);

// Whether this process is one that the calls below and above have started: where a test calls several times, it passes by the earlier ones.
bool is_a_rank();

// The same for cases in which ranks are meant to fail: nothing is asserted, outcomes are returned.
// `change` is called in every rank before it makes its world.
std::vector<RankOutcome> try_ranks(
    int ranks, config::Backend backend, const RankFunction& function, double deadline_s = 60,
    const std::function<void(comm::World::Options&)>& change = [](comm::World::Options&) {});

}  // namespace lockstep::testing
