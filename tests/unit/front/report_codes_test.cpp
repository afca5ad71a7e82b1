// The code that closes a report: fabricated ends in, codes of the catalogue out.
#include <gtest/gtest.h>

#include <csignal>

#include "front/launch/report/report.h"

namespace lockstep::launch {
namespace {

using journal::Phase;

RankEnd living(int rank) {
  RankEnd one;
  one.rank = rank;
  one.page.emplace();
  one.page->rank = static_cast<std::uint32_t>(rank);
  one.page->phase = Phase::reducing;
  return one;
}

RankEnd dead(End end, Phase phase = Phase::backward, const std::string& failure = "") {
  RankEnd one = living(1);
  one.end = end;
  one.ended_ns = 1000;
  one.page->phase = phase;
  one.page->failure = failure;
  one.page->failure_ns = failure.empty() ? 0 : 900;
  one.log = {"last line"};
  return one;
}

Failure job_of(std::vector<RankEnd> ranks) {
  Failure failure;
  failure.world_size = static_cast<int>(ranks.size());
  failure.ranks = std::move(ranks);
  return failure;
}

// Its own words count before how it ended, and both before what stands in its log.
TEST(Report, EndsCarryTheCodeOfTheCatalog) {
  RankEnd oom = dead({0, SIGKILL});
  oom.out_of_memory = "the kernel log";
  RankEnd library = dead({127, 0});
  library.log = {"lockstep-worker: error while loading shared libraries: libcudart.so.13"};
  RankEnd logged = dead({1, 0});
  logged.log = {"terminate called after throwing an instance of 'std::bad_alloc'"};
  Failure stalled = job_of({living(0), living(1)});
  stalled.stall = Stall{120, "rank 1 is reading data", {1}};
  Failure odd = job_of({living(0), living(1)});
  odd.mismatch = "ranks disagree on operation 12";
  Failure lost = job_of({living(0)});
  lost.lost = "machine 1 (box) is gone";
  const auto died = [](const RankEnd& rank) { return job_of({living(0), rank}); };
  for (const auto& [failure, code] : std::vector<std::pair<Failure, std::string>>{
           {died(dead({0, SIGKILL})), "LS-605"},
           {died(oom), "LS-403"},
           {died(dead({0, SIGBUS})), "LS-404"},
           {died(dead({0, SIGILL})), "LS-108"},
           {died(dead({0, SIGSEGV})), "LS-604"},
           {died(dead({3, 0}, Phase::forward, "[memory] CUDA out of memory. Tried to allocate 2 GiB")), "LS-401"},
           {died(library), "LS-104"},
           {died(logged), "LS-402"},
           {died(dead({0, 0}, Phase::forward)), "LS-606"},
           {died(dead({7, 0})), ""},
           {stalled, "LS-310"},
           {odd, "LS-309"},
           {lost, "LS-316"},
       }) {
    const Report report = explain(failure);
    EXPECT_EQ(report.code, code) << report.text;
    EXPECT_EQ(report.text.find("`lockstep explain") != std::string::npos, !code.empty()) << report.text;
  }
}

}  // namespace
}  // namespace lockstep::launch
