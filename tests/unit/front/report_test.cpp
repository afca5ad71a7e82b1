// What a person reads when ranks die, stall or disagree: fabricated ends and pages in, words out.
#include "front/launch/report/report.h"

#include <gtest/gtest.h>

#include <csignal>

#include "front/launch/report/out_of_memory.h"
#include "support/made_pages.h"

namespace lockstep::launch {
namespace {

using journal::Phase;
using support::now;
using support::page;

RankEnd ended(int rank, End end, std::int64_t ended_ns, Phase phase = Phase::backward, const std::string& failure = "",
              std::int64_t failure_ns = 0) {
  RankEnd one;
  one.rank = rank;
  one.end = end;
  one.ended_ns = ended_ns;
  one.page = page(rank, phase);
  one.page->failure = failure;
  one.page->failure_code = failure.empty() ? 0 : end.exit_code;
  one.page->failure_ns = failure_ns;
  one.log = {"line before", "last line"};
  one.log_file = "runs/x/ranks/" + std::to_string(rank) + ".log";
  return one;
}

RankEnd running(int rank, Phase phase = Phase::reducing) {
  RankEnd one;
  one.rank = rank;
  one.ended_ns = now;
  one.page = page(rank, phase);
  return one;
}

const std::string closed = "[comm] rank 0: all_reduce 7 of group world (x) failed: Connection closed by peer [127.0.0.1]:41234";

TEST(Report, TheFirstCauseIsFound) {
  struct Case {
    std::string what;
    std::vector<RankEnd> ranks;
    std::optional<std::size_t> cause;
  };
  RankEnd failing = running(1);  // its error is on the page, the process still unwinds
  failing.page->failure = "[data] bad file";
  failing.page->failure_ns = now - 5;
  RankEnd slow_to_die = running(1, Phase::backward);
  slow_to_die.dying = true;
  RankEnd aborted = ended(0, {0, SIGABRT}, now - 10, Phase::reducing);
  aborted.log = {"terminate called after throwing an instance of 'gloo::IoException'", "  what():  Connection closed by peer"};
  for (const auto& c : std::vector<Case>{
           {"all well", {running(0), ended(1, {0, 0}, now, Phase::done)}, std::nullopt},
           {"the one that died", {running(0), ended(1, {0, SIGKILL}, now)}, 1},
           {"seen later, though it died first",
            {ended(0, {6, 0}, now - 100, Phase::reducing, closed, now - 200), ended(1, {0, SIGKILL}, now)},
            1},
           {"an abort for a closed connection is a consequence too", {aborted, ended(1, {0, SIGSEGV}, now)}, 1},
           {"two with their own errors: by the time on the page",
            {ended(0, {4, 0}, now - 1, Phase::reading_data, "[data] second", now - 50),
             ended(1, {4, 0}, now, Phase::reading_data, "[data] first", now - 90)},
            1},
           {"only consequences: the earliest",
            {ended(0, {6, 0}, now, Phase::reducing, closed, now - 5), ended(1, {6, 0}, now, Phase::reducing, closed, now - 9)},
            1},
           {"an error on the page counts before the exit", {ended(0, {6, 0}, now - 1, Phase::reducing, closed, now - 3), failing}, 1},
           {"left early", {running(0), ended(1, {0, 0}, now, Phase::forward)}, 1},
           {"whatever words the library chose for a lost partner",
            {ended(0, {6, 0}, now - 9, Phase::reducing, "[comm] rank 0: all_reduce 7 of group world (x) failed: Timed out", now - 9),
             ended(1, {0, SIGKILL}, now)},
            1},
           {"one whose memory is still being freed", {ended(0, {6, 0}, now - 9, Phase::reducing, closed, now - 9), slow_to_die}, 1},
           {"left while finishing is fine", {running(0), ended(1, {0, 0}, now, Phase::finishing)}, std::nullopt},
       }) {
    EXPECT_EQ(first_cause(c.ranks), c.cause) << c.what;
  }
}

Failure job(std::vector<RankEnd> ranks) {
  Failure failure;
  failure.world_size = static_cast<int>(ranks.size());
  failure.ranks = std::move(ranks);
  return failure;
}

TEST(Report, Words) {
  RankEnd oom = ended(1, {0, SIGKILL}, now);
  oom.out_of_memory = "the kernel log";
  RankEnd cuda = ended(1, {3, 0}, now, Phase::forward, "[memory] CUDA out of memory. Tried to allocate 2 GiB", now - 1);
  RankEnd library = ended(1, {127, 0}, now);
  library.page.reset();
  library.log = {"lockstep-worker: error while loading shared libraries: libcudart.so.13: cannot open shared object file"};
  RankEnd bug = ended(1, {70, 0}, now, Phase::updating, "bug in lockstep: x", now - 1);
  RankEnd gone = ended(1, {6, 0}, now);
  gone.elsewhere = true;
  RankEnd silent = ended(1, {0, SIGSEGV}, now);
  silent.log.clear();
  struct Case {
    std::string what;
    Failure failure;
    int code;
    std::optional<int> rank;
    std::vector<std::string> says;
    std::vector<std::string> never = {};
  };
  Failure stalled = job({running(0), running(1, Phase::reading_data)});
  stalled.stall = Stall{120, "rank 1 is reading data since 120 s; rank 0 waits in all_reduce 7, x", {1}};
  Failure odd = job({ended(0, {6, 0}, now, Phase::reducing, closed, now - 1), running(1)});
  odd.mismatch = "ranks disagree on operation 12 of group world: rank 1 entered broadcast of 4 bytes";
  Failure odd_but_killed = job({running(0), ended(1, {0, SIGKILL}, now)});
  odd_but_killed.mismatch = odd.mismatch;

  for (const auto& c : std::vector<Case>{
           {"SIGKILL",
            job({ended(0, {6, 0}, now, Phase::reducing, closed, now - 1), ended(1, {0, SIGKILL}, now), running(2)}),
            6,
            1,
            {"rank 1 of 3 died first", "in step 17 while computing the backward pass", "signal 9 (SIGKILL", "| last line",
             "runs/x/ranks/1.log", "Rank 0 failed after it, as a consequence", "Rank 2 was ended with it", "What to try"},
            {"Connection closed", "out-of-memory killer"}},
           {"out of memory",
            job({running(0), oom}),
            6,
            1,
            {"killed, likely by the system's out-of-memory killer (the kernel log says so)", "less memory on the host"}},
           {"segmentation fault",
            job({running(0), ended(1, {0, SIGSEGV}, now)}),
            6,
            1,
            {"signal 11 (SIGSEGV, segmentation fault", "looks like a bug"}},
           {"abort", job({running(0), ended(1, {0, SIGABRT}, now)}), 6, 1, {"SIGABRT, aborted"}},
           {"its own error",
            job({running(0), ended(1, {4, 0}, now, Phase::reading_data, "[data] tokens.bin ends early", now - 1)}),
            4,
            1,
            {"rank 1 of 2 died first, in step 17 while reading data", "exited with code 4", "[data] tokens.bin ends early"}},
           {"CUDA memory", job({running(0), cuda}), 3, 1, {"--batch-size", "--grad-accum"}},
           {"a missing library", job({running(0), library}), 3, 1, {"before it came to main()", "libcudart.so.13", "LOCKSTEP_LIBTORCH"}},
           {"a bug", job({running(0), bug}), 70, 1, {"bug in lockstep: x", "report it"}},
           {"an odd exit code", job({running(0), ended(1, {7, 0}, now)}), 6, 1, {"exited with code 7"}},
           {"a rank of another launcher", job({running(0), gone}), 6, 1, {"rank 1 of 2 died first", "its process is gone"}},
           {"left early", job({running(0), ended(1, {0, 0}, now, Phase::forward)}), 6, 1, {"left with exit code 0 before the end"}},
           {"wrote nothing", job({running(0), silent}), 6, 1, {"wrote nothing to runs/x/ranks/1.log"}},
           {"one rank alone", job({ended(0, {0, SIGKILL}, now)}), 6, 0, {"the worker died in step 17"}, {"of 1", "ended with it"}},
           {"stall",
            stalled,
            6,
            1,
            {"nothing has moved for 120 s: rank 1 is reading data since 120 s; rank 0 waits in all_reduce 7", "The others wait for rank 1",
             "monitor.stall_seconds"}},
           {"mismatch that led to an error", odd, 6, std::nullopt, {"ranks disagree on operation 12", "same order"}, {"Connection closed"}},
           {"a kill explains more than a mismatch", odd_but_killed, 6, 1, {"SIGKILL"}},
       }) {
    const Report report = explain(c.failure);
    EXPECT_EQ(report.exit_code, c.code) << c.what << "\n" << report.text;
    EXPECT_EQ(report.rank, c.rank) << c.what << "\n" << report.text;
    for (const auto& text : c.says)
      EXPECT_NE(report.text.find(text), std::string::npos) << c.what << ": no '" << text << "' in\n" << report.text;
    for (const auto& text : c.never)
      EXPECT_EQ(report.text.find(text), std::string::npos) << c.what << ": '" << text << "' in\n" << report.text;
  }
}

// What was seen a moment ago may be gone when it is to be explained; that is no bug of the launcher's.
TEST(Report, AFailureThatNobodyExplainsIsNoBug) {
  const Report report = explain({.world_size = 2, .ranks = {running(0), running(1)}});
  EXPECT_EQ(report.exit_code, 6);
  EXPECT_NE(report.text.find("none of them says why: rank 0 is"), std::string::npos) << report.text;
  EXPECT_EQ(explain({.world_size = 2}).exit_code, 6);
}

TEST(OutOfMemory, TheKernelsVictimIsNamed) {
  const std::string line = "3,1234,5678,-;Memory cgroup out of memory: Killed process 4711 (lockstep-worker) total-vm:1kB\n";
  EXPECT_TRUE(names_victim(line, 4711));
  EXPECT_FALSE(names_victim(line, 471));
  EXPECT_FALSE(names_victim(line, 711));
  EXPECT_EQ(oom_kills("/nowhere"), -1);
}

}  // namespace
}  // namespace lockstep::launch
