// When micro-steps are recorded, as a table of what came before.
#include "rank/train/step/graph_policy.h"

#include <gtest/gtest.h>

#include <string>

namespace lockstep::train {
namespace {

using enum GraphAction;
const std::vector<std::int64_t> usual = {4, 16}, other = {3, 16}, third = {2, 16}, packed = {};

GraphPolicy policy_of(std::int64_t warm_up, std::size_t most_kept = 8) {
  return GraphPolicy({.wanted = true, .warm_up = warm_up, .most_kept = most_kept, .patience = 2 * warm_up});
}

// "-": kernel by kernel, "r": may be replayed, "A", "R": records the one that adds, the one that reduces, or both, with "f" where another
// place is forgotten for that.
std::string ask(GraphPolicy& policy, GraphAction action, const std::vector<std::int64_t>& shape, bool recordable = true,
                std::size_t flight = 0) {
  const GraphPolicy::Answer answer = policy.before({action, {.flight = flight, .shape = shape}}, recordable);
  const std::string records =
      std::string(answer.forget ? "f" : "") + (answer.record_adding ? "A" : "") + (answer.record_reducing ? "R" : "");
  return !records.empty() ? records : answer.may_replay ? "r" : "-";
}

TEST(GraphPolicy, OneMicroBatchAStepRecordsTheOneThatReduces) {
  GraphPolicy policy = policy_of(3);
  for (const char* expected : {"-", "-", "-", "R", "r", "r"}) EXPECT_EQ(ask(policy, reduces, usual), expected);
}

TEST(GraphPolicy, AllIsRecordedBeforeRanksAgree) {
  GraphPolicy policy = policy_of(3);
  EXPECT_EQ(ask(policy, adds, usual), "-");
  EXPECT_EQ(ask(policy, reduces, usual), "-");
  EXPECT_EQ(ask(policy, adds, usual), "-");
  EXPECT_EQ(ask(policy, reduces, usual), "AR");
  EXPECT_EQ(ask(policy, adds, usual), "r");
  EXPECT_EQ(ask(policy, reduces, usual), "r");
}

TEST(GraphPolicy, AReductionThatCannotBeRecordedLeavesTheOneThatAdds) {
  GraphPolicy policy = policy_of(1);
  EXPECT_EQ(ask(policy, adds, usual, false), "-");
  EXPECT_EQ(ask(policy, reduces, usual, false), "r");
  EXPECT_EQ(ask(policy, adds, usual, false), "A") << "whoever has it already makes it no second time";
}

TEST(GraphPolicy, EveryShapeAndFlightWarmsUpByItself) {
  GraphPolicy policy = policy_of(2);
  EXPECT_EQ(ask(policy, reduces, usual), "-");
  EXPECT_EQ(ask(policy, reduces, other), "-");
  EXPECT_EQ(ask(policy, reduces, usual), "-");
  EXPECT_EQ(ask(policy, reduces, packed), "-") << "neither recorded nor counted";
  EXPECT_EQ(ask(policy, reduces, usual), "R");
  EXPECT_EQ(ask(policy, reduces, other), "-");
  EXPECT_EQ(ask(policy, reduces, other), "R");
  EXPECT_EQ(ask(policy, reduces, usual), "r");
  EXPECT_EQ(ask(policy, reduces, usual, true, /*flight=*/1), "-") << "another flight has buffers of its own";
}

TEST(GraphPolicy, TheLeastRecentlyUsedGoes) {
  GraphPolicy policy = policy_of(1, /*most_kept=*/2);
  for (const auto& shape : {usual, other}) EXPECT_EQ(ask(policy, reduces, shape), "-");
  for (const auto& shape : {usual, other, usual}) ask(policy, reduces, shape);
  for (int i = 0; i < 2; ++i) EXPECT_EQ(ask(policy, reduces, third), "-") << "it waits longer than it warms up";
  const auto answer = policy.before({reduces, {.shape = third}}, true);
  EXPECT_EQ(answer.forget, (GraphPlace{.shape = other})) << "usual came later";
  EXPECT_TRUE(answer.record_reducing);
  EXPECT_EQ(ask(policy, reduces, usual), "r");
  for (int i = 0; i < 2; ++i) EXPECT_EQ(ask(policy, reduces, other), "-") << "it begins anew";
  EXPECT_EQ(ask(policy, reduces, other), "fR");
}

TEST(GraphPolicy, ShapesThatTakeTurnsDoNotDriveEachOtherOut) {
  GraphPolicy policy = policy_of(2, /*most_kept=*/2);
  int recorded = 0, replayed = 0;
  for (int round = 0; round < 20; ++round)
    for (const auto& shape : {usual, other, third}) {
      const std::string answer = ask(policy, reduces, shape);
      recorded += answer.back() == 'R';
      replayed += answer == "r";
    }
  EXPECT_EQ(recorded, 2);
  EXPECT_EQ(replayed, 2 * (20 - 3));
}

TEST(GraphPolicy, ManyShapesTakeNoMoreRoomThanFew) {
  GraphPolicy policy = policy_of(1, /*most_kept=*/2);
  for (int i = 0; i < 2; ++i) EXPECT_EQ(ask(policy, reduces, usual), i == 0 ? "-" : "R");
  for (std::int64_t i = 0; i < 1000; ++i) EXPECT_EQ(ask(policy, reduces, {i, i}), "-");
  EXPECT_EQ(ask(policy, reduces, usual), "r") << "what is kept is not forgotten for what was seen once";
  EXPECT_EQ(ask(policy, reduces, {1, 1}), "-") << "forgotten long ago";
}

TEST(GraphPolicy, RecordingsThatAreGoneAreMadeAnew) {
  GraphPolicy policy = policy_of(1);
  EXPECT_EQ(ask(policy, reduces, usual), "-");
  EXPECT_EQ(ask(policy, reduces, usual), "R");
  policy.start_over();
  EXPECT_EQ(ask(policy, reduces, usual), "R");
  EXPECT_EQ(ask(policy, reduces, usual), "r");
}

TEST(GraphPolicy, NothingIsRecordedWhereNobodyWantsIt) {
  GraphPolicy policy({.wanted = false, .warm_up = 1});
  for (int i = 0; i < 4; ++i) EXPECT_EQ(ask(policy, reduces, usual), "-");
}

}  // namespace
}  // namespace lockstep::train
