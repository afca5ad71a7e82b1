// When micro-steps are recorded, as a table of what came before.
#include "rank/train/step/graph_policy.h"

#include <gtest/gtest.h>

#include <string>

namespace lockstep::train {
namespace {

const std::vector<std::int64_t> usual = {4, 16}, other = {3, 16}, packed = {};

// "-": kernel by kernel, "r": may be replayed, "A", "R": records the one that adds, the one that reduces, or both.
std::string ask(GraphPolicy& policy, MicroKind kind, const std::vector<std::int64_t>& shape, bool recordable = true) {
  const GraphPolicy::Answer answer = policy.before(kind, shape, recordable);
  const std::string records = std::string(answer.record_adding ? "A" : "") + (answer.record_reducing ? "R" : "");
  return !records.empty() ? records : answer.may_replay ? "r" : "-";
}

TEST(GraphPolicy, OneMicroBatchAStepRecordsTheOneThatReduces) {
  GraphPolicy policy(true, 3);
  for (const char* expected : {"-", "-", "-", "R", "r", "r"}) EXPECT_EQ(ask(policy, MicroKind::reduces, usual), expected);
}

TEST(GraphPolicy, AllIsRecordedBeforeRanksAgree) {
  GraphPolicy policy(true, 3);
  EXPECT_EQ(ask(policy, MicroKind::adds, usual), "-");
  EXPECT_EQ(ask(policy, MicroKind::reduces, usual), "-");
  EXPECT_EQ(ask(policy, MicroKind::adds, usual), "-");
  EXPECT_EQ(ask(policy, MicroKind::reduces, usual), "AR");
  EXPECT_EQ(ask(policy, MicroKind::adds, usual), "r");
  EXPECT_EQ(ask(policy, MicroKind::reduces, usual), "r");
}

TEST(GraphPolicy, AReductionThatCannotBeRecordedLeavesTheOneThatAdds) {
  GraphPolicy policy(true, 1);
  EXPECT_EQ(ask(policy, MicroKind::adds, usual, false), "-");
  EXPECT_EQ(ask(policy, MicroKind::reduces, usual, false), "r");
  EXPECT_EQ(ask(policy, MicroKind::adds, usual, false), "A") << "whoever has it already makes it no second time";
}

TEST(GraphPolicy, OtherShapesBeginAnewOrAreLeftOut) {
  GraphPolicy policy(true, 2);
  EXPECT_EQ(ask(policy, MicroKind::reduces, usual), "-");
  EXPECT_EQ(ask(policy, MicroKind::reduces, other), "-");  // counts from here
  EXPECT_EQ(ask(policy, MicroKind::reduces, usual), "-");
  EXPECT_EQ(ask(policy, MicroKind::reduces, packed), "-") << "neither recorded nor counted";
  EXPECT_EQ(ask(policy, MicroKind::reduces, usual), "-");
  EXPECT_EQ(ask(policy, MicroKind::reduces, usual), "R");
  EXPECT_EQ(ask(policy, MicroKind::reduces, other), "-");  // the short end of an epoch
  EXPECT_EQ(ask(policy, MicroKind::reduces, usual), "r");
}

TEST(GraphPolicy, RecordingsThatAreGoneAreMadeAnew) {
  GraphPolicy policy(true, 1);
  EXPECT_EQ(ask(policy, MicroKind::reduces, usual), "-");
  EXPECT_EQ(ask(policy, MicroKind::reduces, usual), "R");
  policy.start_over();
  EXPECT_EQ(ask(policy, MicroKind::reduces, usual), "R");
  EXPECT_EQ(ask(policy, MicroKind::reduces, usual), "r");
}

TEST(GraphPolicy, NothingIsRecordedWhereNobodyWantsIt) {
  GraphPolicy policy(false, 1);
  for (int i = 0; i < 4; ++i) EXPECT_EQ(ask(policy, MicroKind::reduces, usual), "-");
}

}  // namespace
}  // namespace lockstep::train
