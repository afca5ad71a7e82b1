// Who holds the others up, and who is at odds with them: fabricated pages in, words out.
#include "front/launch/watch.h"

#include <gtest/gtest.h>

#include "front/launch/launch.h"
#include "support/made_pages.h"

namespace lockstep::launch {
namespace {

using journal::Operation;
using journal::OperationState;
using journal::PageView;
using journal::Phase;
using journal::ProcessState;
using support::now;
using support::operation;
using support::page;
using support::second;

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

PageView as(PageView view, ProcessState state, double since_s = 31) {
  view.pid = 4711;
  view.process = state;
  view.process_since_ns = now - static_cast<std::int64_t>(since_s * second);
  return view;
}

PageView waits(int rank, std::uint64_t sequence, Phase phase = Phase::reducing) {
  return page(rank, phase, {operation(sequence, "all_reduce", "")});
}

TEST(Watch, ADiskThatDoesNotAnswerIsToldOfAndWaitedFor) {
  const auto saves = [](double since_s) { return as(page(0, Phase::saving, {}, 500), ProcessState::uninterruptible, since_s); };
  const std::vector<PageView> pages = {saves(31), waits(1, 48, Phase::saving)};
  const auto stall = find_stall(pages, now, 30);
  ASSERT_TRUE(stall);
  EXPECT_EQ(
      stall->text,
      "rank 0 is saving a checkpoint since 500 s, in uninterruptible sleep (process 4711 is in state D); rank 1 waits in all_reduce 48");
  EXPECT_EQ(stall->causes, std::vector<int>{0});
  EXPECT_FALSE(stall->ends_job);
  const std::string words = stalled_words(*stall, 120);
  EXPECT_NE(words.find(". The run waits for it: rank 0 waits within the kernel for a disk"), std::string::npos) << words;
  EXPECT_TRUE(find_stall(std::vector{saves(31), page(1, Phase::saving, {}, 500)}, now, 30)) << "whatever the other does";
  EXPECT_FALSE(find_stall(std::vector{saves(5), waits(1, 48, Phase::saving)}, now, 30)) << "disks take time: it sleeps now and then";
  const PageView beside = as(waits(0, 48, Phase::saving), ProcessState::uninterruptible);
  EXPECT_FALSE(find_stall(std::vector{beside, page(1, Phase::saving, {}, 500)}, now, 30)) << "it waits for the one that saves";
}

TEST(Watch, WhatBecameOfAProcessIsSaid) {
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

}  // namespace
}  // namespace lockstep::launch
