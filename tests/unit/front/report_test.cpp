// What a person reads when ranks die, stall or disagree: fabricated ends and pages in, words out.
#include "front/launch/report/report.h"

#include <gtest/gtest.h>

#include <csignal>
#include <cstring>

#include "front/launch/report/out_of_memory.h"
#include "front/launch/watch.h"

namespace lockstep::launch {
namespace {

using journal::Operation;
using journal::OperationState;
using journal::PageView;
using journal::Phase;

constexpr std::int64_t second = 1'000'000'000;
constexpr std::int64_t now = 1000 * second;

Operation operation(std::uint64_t sequence, const char* kind = "all_reduce", const char* what = "gradients of block 14",
                    std::uint64_t bytes = 4096, OperationState state = OperationState::waited_for, const char* group = "world") {
  Operation one{};
  std::strncpy(one.group, group, sizeof one.group - 1);
  std::strncpy(one.kind, kind, sizeof one.kind - 1);
  std::strncpy(one.what, what, sizeof one.what - 1);
  one.sequence = sequence;
  one.bytes = bytes;
  one.issued_ns = now - 31 * second;
  one.state = state;
  return one;
}

PageView page(int rank, Phase phase, std::vector<Operation> operations = {}, double idle_s = 31) {
  PageView view;
  view.rank = static_cast<std::uint32_t>(rank);
  view.phase = phase;
  view.step = 17;
  view.phase_since_ns = view.progress_ns = now - static_cast<std::int64_t>(idle_s * second);
  view.operations = std::move(operations);
  return view;
}

TEST(Watch, ListsRanks) {
  EXPECT_EQ(list_ranks(std::vector<int>{3}), "3");
  EXPECT_EQ(list_ranks(std::vector<int>{1, 0}), "0 and 1");
  EXPECT_EQ(list_ranks(std::vector<int>{0, 1, 2, 3, 6, 7}), "0-3, 6 and 7");
  EXPECT_EQ(name_ranks(std::vector<int>{2}), "rank 2");
  EXPECT_EQ(name_ranks(std::vector<int>{2, 5}), "ranks 2 and 5");
}

TEST(Watch, AStallNamesWhoDoesWhatAndWhoWaits) {
  std::vector<PageView> pages;
  for (int rank = 0; rank < 8; ++rank)
    pages.push_back(rank == 5 ? page(5, Phase::reading_data) : page(rank, Phase::reducing, {operation(4812)}));
  const auto stall = find_stall(pages, now, 30);
  ASSERT_TRUE(stall);
  EXPECT_EQ(stall->text, "rank 5 is reading data since 31 s; 7 ranks (0-4, 6 and 7) wait in all_reduce 4812, gradients of block 14");
  EXPECT_EQ(stall->causes, std::vector<int>{5});
  EXPECT_NEAR(stall->seconds, 31, 1e-6);
}

TEST(Watch, WhatIsAStallAndWhatIsNot) {
  const auto waits = [](int rank, double idle = 31) { return page(rank, Phase::reducing, {operation(7)}, idle); };
  struct Case {
    std::string what;
    std::vector<PageView> pages;
    bool stalls;
    std::vector<int> causes = {};
  };
  for (const auto& c : std::vector<Case>{
           {"no pages yet", {}, false},
           {"one is slow, not for long", {waits(0, 20), page(1, Phase::forward, {}, 20)}, false},
           {"one is slow", {waits(0), page(1, Phase::forward)}, true, {1}},
           {"something moved a moment ago", {waits(0), page(1, Phase::forward, {}, 2)}, false},
           {"rank 0 saves, the others wait", {page(0, Phase::saving, {}, 500), waits(1, 500)}, false},
           {"rank 0 evaluates", {page(0, Phase::evaluating, {}, 500), waits(1, 500)}, false},
           {"loading", {page(0, Phase::loading, {}, 500), page(1, Phase::loading, {}, 500)}, false},
           {"one has left, the others wait for it", {page(0, Phase::done, {}, 500), waits(1)}, true, {0}},
           {"all have finished", {page(0, Phase::done, {}, 500), page(1, Phase::done, {}, 500)}, false},
           {"all wait", {waits(0), waits(1)}, true, {}},
           {"reducing with an operation that was only issued",
            {page(0, Phase::reducing, {operation(7, "all_reduce", "x", 1, OperationState::issued)}), page(1, Phase::backward)},
            true,
            {1}},
           {"finished operations do not count",
            {page(0, Phase::reducing, {operation(7, "all_reduce", "x", 1, OperationState::finished)}), waits(1)},
            true,
            {0}},
       }) {
    const auto stall = find_stall(c.pages, now, 30);
    EXPECT_EQ(stall.has_value(), c.stalls) << c.what;
    if (stall) {
      EXPECT_EQ(stall->causes, c.causes) << c.what << ": " << stall->text;
    }
  }
}

TEST(Watch, WhatBecameOfAProcessIsSaid) {
  using journal::ProcessState;
  const auto as = [](PageView view, ProcessState state, double since_s = 31) {
    view.pid = 4711;
    view.process = state;
    view.process_since_ns = now - static_cast<std::int64_t>(since_s * second);
    return view;
  };
  const auto waits = [](int rank, std::uint64_t sequence, Phase phase = Phase::reducing) {
    return page(rank, phase, {operation(sequence, "all_reduce", "")});
  };
  struct Case {
    std::string what;
    std::vector<PageView> pages;
    std::string text;  // empty: no stall
    std::vector<int> causes = {};
    std::string advice = "";
    bool ends_job = true;
  };
  for (const auto& c : std::vector<Case>{
           {"stopped within an operation",
            {as(waits(0, 46), ProcessState::stopped), waits(1, 48)},
            "rank 0 is stopped (process 4711 is in state T); rank 1 waits in all_reduce 48",
            {0},
            "`kill -CONT 4711` lets it go on"},
           {"stopped beside one that reads",
            {as(page(0, Phase::forward), ProcessState::stopped), page(1, Phase::reading_data)},
            "rank 0 is stopped (process 4711 is in state T); rank 1 is reading data since 31 s",
            {0},
            "kill -CONT"},
           {"gone",
            {as(waits(0, 46), ProcessState::gone), waits(1, 48)},
            "rank 0 is gone (there is no process 4711 any more); rank 1 waits in all_reduce 48",
            {0}},
           {"a disk that does not answer",
            {as(page(0, Phase::reading_data), ProcessState::uninterruptible), waits(1, 48)},
            "rank 0 is reading data since 31 s, in uninterruptible sleep (process 4711 is in state D); rank 1 waits in all_reduce 48",
            {0},
            "dmesg"},
           {"a side thread at the disk is no news",
            {as(waits(0, 46), ProcessState::uninterruptible), page(1, Phase::forward)},
            "rank 1 is computing the forward pass since 31 s; rank 0 waits in all_reduce 46",
            {1},
            "dmesg"},
           {"stopped while it saves, and the other waits for it",
            {as(page(0, Phase::saving, {}, 500), ProcessState::stopped), waits(1, 48, Phase::saving)},
            "rank 0 is stopped (process 4711 is in state T); rank 1 waits in all_reduce 48",
            {0},
            "kill -CONT"},
           {"stopped while it saves, not for long yet",
            {as(page(0, Phase::saving, {}, 500), ProcessState::stopped, 5), waits(1, 48, Phase::saving)},
            ""},
           {"stopped, and the other saves by itself: it is told of, and the save goes on",
            {as(page(0, Phase::saving), ProcessState::stopped), page(1, Phase::saving, {}, 500)},
            "rank 0 is stopped (process 4711 is in state T); rank 1 is saving a checkpoint since 500 s",
            {0},
            "kill -CONT",
            /*ends_job=*/false},
           {"the others go on without the one that is stopped",
            {as(page(0, Phase::saving), ProcessState::stopped), page(1, Phase::saving, {}, 500), page(2, Phase::forward, {}, 3)},
            ""},
           {"it saves, and disks take time", {as(page(0, Phase::saving, {}, 500), ProcessState::uninterruptible), waits(1, 48)}, ""},
           {"it has finished and may go",
            {as(page(0, Phase::done), ProcessState::gone), waits(1, 48)},
            "rank 0 has finished; rank 1 waits in all_reduce 48",
            {0}},
       }) {
    const auto stall = find_stall(c.pages, now, 30);
    ASSERT_EQ(stall.has_value(), !c.text.empty()) << c.what;
    if (!stall) continue;
    EXPECT_EQ(stall->text, c.text) << c.what;
    EXPECT_EQ(stall->causes, c.causes) << c.what;
    EXPECT_EQ(stall->ends_job, c.ends_job) << c.what;
    EXPECT_EQ(stall->advice.empty(), c.advice.empty()) << c.what;
    if (!c.advice.empty()) {
      EXPECT_NE(stall->advice.front().find(c.advice), std::string::npos) << c.what << ": " << stall->advice.front();
    }
  }
}

TEST(Watch, DifferentCollectivesAreNamed) {
  const std::vector<PageView> kinds = {page(0, Phase::reducing, {operation(11), operation(12)}),
                                       page(1, Phase::evaluating, {operation(11), operation(12, "all_gather", "evaluation loss", 64)}),
                                       page(2, Phase::reducing, {operation(11), operation(12)})};
  const auto mismatch = find_mismatch(kinds);
  ASSERT_TRUE(mismatch);
  EXPECT_EQ(mismatch->text,
            "ranks disagree on operation 12 of group world: rank 1 entered all_gather of 64 bytes (evaluation loss); ranks 0 and 2 entered "
            "all_reduce of 4096 bytes "
            "(gradients of block 14)");
  EXPECT_EQ(mismatch->odd_ones, std::vector<int>{1});
}

TEST(Watch, WhatIsAMismatchAndWhatIsNot) {
  const auto two = [](const Operation& a, const Operation& b) {
    return std::vector<PageView>{page(0, Phase::reducing, {a}), page(1, Phase::reducing, {b})};
  };
  struct Case {
    std::string what;
    std::vector<PageView> pages;
    bool mismatch;
  };
  for (const auto& c : std::vector<Case>{
           {"the same", two(operation(1), operation(1)), false},
           {"one is ahead", two(operation(1), operation(2, "all_gather", "other", 8)), false},
           {"other size", two(operation(1), operation(1, "all_reduce", "gradients of block 14", 8192)), true},
           {"other kind", two(operation(1), operation(1, "broadcast")), true},
           {"same size, other purpose", two(operation(1), operation(1, "all_reduce", "gradients of block 13")), true},
           {"other group", two(operation(1), operation(1, "broadcast", "x", 1, OperationState::issued, "pipeline")), false},
           {"two ends of one transfer", two(operation(1, "send"), operation(1, "recv")), false},
           {"progress does not matter",
            two(operation(1), operation(1, "all_reduce", "gradients of block 14", 4096, OperationState::finished)), false},
       }) {
    EXPECT_EQ(find_mismatch(c.pages).has_value(), c.mismatch) << c.what;
  }
}

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
