// Who the others wait for, from where each rank's time goes; and lines that tell of it.
#include "journal/parts.h"

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "base/files.h"
#include "base/text.h"
#include "journal/metrics.h"
#include "journal/scalars/scalars.h"
#include "journal/thinned_lines.h"
#include "support/temporary_folder.h"

namespace lockstep::journal {
namespace {

// data, forward, backward, communication, optimizer, checkpoint, other
TEST(Parts, TheStragglerIsWhoWorksLongestNotWhoWaits) {
  struct Case {
    std::string what;
    std::vector<PartSeconds> ranks;
    int rank;  // -1: none
    Part part;
    double seconds;
  };
  for (const Case& c : std::vector<Case>{
           {"one rank", {{0.5, 1, 2, 0, 0, 0, 0}}, -1, Part::other, 0},
           {"alike", {{0, 1, 2, 0.1, 0.1, 0, 0}, {0, 1.05, 2, 0.05, 0.1, 0, 0}}, -1, Part::other, 0},
           {"late batches", {{0.0, 1, 2, 0.6, 0.1, 0, 0}, {0.6, 1, 2, 0.0, 0.1, 0, 0}}, 1, Part::data, 0.6},
           {"slow compute", {{0, 1.5, 3, 0, 0.1, 0, 0}, {0, 1, 2, 1.5, 0.1, 0, 0}, {0, 1, 2, 1.5, 0.1, 0, 0}}, 0, Part::backward, 1.5},
           {"slow disk", {{0, 1, 2, 0.9, 0, 0.1, 0}, {0, 1, 2, 0, 0, 1.0, 0}}, 1, Part::checkpoint, 0.9},
           {"all wait for one in the forward pass",
            {{0, 1, 2, 0.5, 0, 0, 0}, {0, 1.5, 2, 0, 0, 0, 0}, {0, 1, 2, 0.5, 0, 0, 0}},
            1,
            Part::forward,
            0.5},
           {"nothing was measured", {{}, {}}, -1, Part::other, 0},
       }) {
    const auto found = find_straggler(c.ranks);
    ASSERT_EQ(found.has_value(), c.rank >= 0) << c.what;
    if (!found) continue;
    EXPECT_EQ(found->rank, c.rank) << c.what;
    EXPECT_EQ(found->part, c.part) << c.what;
    EXPECT_NEAR(found->seconds, c.seconds, 1e-9) << c.what;
    EXPECT_NEAR(found->share, c.seconds / total(c.ranks[static_cast<std::size_t>(c.rank)]), 1e-9) << c.what;
  }
}

TEST(Parts, StepLinesTellThemByNameAndScalarsByRank) {
  const StepLine line{
      .step = 7,
      .loss = 2,
      .rank_seconds = {{0.0, 1, 2, 0.6, 0.1, 0, 0}, {0.6, 1, 2, 0.0, 0.1, 0, 0}},
      .collectives = {{.kind = "all_gather", .calls = 2, .bytes = 64}, {.kind = "all_reduce", .calls = 3, .bytes = 1000, .seconds = 0.25}}};
  const auto json = nlohmann::json::parse(to_json_line(line));
  EXPECT_EQ(json["rank_seconds"].size(), part_count);
  EXPECT_EQ(json["rank_seconds"]["data"], (std::vector<double>{0, 0.6}));
  EXPECT_EQ(json["straggler"]["rank"], 1);
  EXPECT_EQ(json["straggler"]["part"], "data");
  EXPECT_EQ(json["collectives"]["all_reduce"]["seconds"], 0.25);
  EXPECT_TRUE(json["collectives"]["all_gather"]["seconds"].is_null());
  const auto scalars = scalars_of(line);
  const auto value = [&](std::string_view name) {
    for (const Scalar& one : scalars)
      if (one.name == name) return one.value;
    return -1.0;
  };
  EXPECT_EQ(value("train/loss"), 2);
  EXPECT_EQ(value("rank-1/data"), 0.6);
  EXPECT_EQ(value("time/data"), 0.3);
}

TEST(ThinnedLines, CoverAllOfARunWithTheLastLinesWhole) {
  const support::TemporaryFolder folder;
  const auto path = folder.path() / "monitor" / "machine-0.jsonl";
  {
    ThinnedLines lines(path, {.most = 100, .untouched = 20});
    lines.write(R"({"event":"machine"})");
    for (int i = 0; i < 1000; ++i) lines.write(std::to_string(i));
  }
  const auto kept = [&] {
    auto lines = base::split(base::read_text(path), '\n');
    lines.pop_back();
    return lines;
  };
  auto lines = kept();
  EXPECT_LE(lines.size(), 100u);
  EXPECT_GE(lines.size(), 50u);
  EXPECT_EQ(lines.front(), R"({"event":"machine"})");
  for (int i = 0; i < 20; ++i) EXPECT_EQ(lines[lines.size() - 20 + static_cast<std::size_t>(i)], std::to_string(980 + i));
  // In order, and no great gap: the whole of it is there.
  for (std::size_t i = 2; i < lines.size(); ++i) {
    const int gap = std::stoi(lines[i]) - std::stoi(lines[i - 1]);
    EXPECT_GT(gap, 0);
    EXPECT_LE(gap, 256);
  }
  ThinnedLines(path, {.most = 100, .untouched = 20}).write("goes on");
  EXPECT_EQ(kept().back(), "goes on");
  EXPECT_EQ(kept().front(), R"({"event":"machine"})");
}

}  // namespace
}  // namespace lockstep::journal
