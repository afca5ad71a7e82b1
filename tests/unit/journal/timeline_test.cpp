// Going back sets later checkpoints aside, whole, whatever moment a crash or a power cut picks.
#include "journal/timeline.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>

#include "base/error.h"
#include "journal/run_folder.h"
#include "support/files/faulty_files.h"
#include "support/temporary_folder.h"

namespace lockstep::journal {
namespace {

namespace fs = std::filesystem;
using Steps = std::vector<std::int64_t>;
using support::FaultyFiles;

struct TestRun {
  support::TemporaryFolder folder;
  fs::path checkpoints = folder.path() / "checkpoints", metrics = folder.path() / "metrics.jsonl";

  explicit TestRun(const Steps& steps) {
    std::ofstream(metrics) << "all the lines\n";
    for (const std::int64_t step : steps) add(step);
  }
  void add(std::int64_t step) const {
    const fs::path path = checkpoint_folder(checkpoints, step);
    fs::create_directories(path);
    std::ofstream(path / "manifest.json") << step;
  }
  Steps living() const {
    Steps steps;
    for (const auto& entry : list_checkpoints(checkpoints)) steps.push_back(entry.step);
    return steps;
  }
  std::string best() const {
    std::error_code none;
    return fs::read_symlink(checkpoints / "best", none).string();
  }
  std::vector<std::string> names() const {
    std::vector<std::string> found;
    for (const auto& entry : fs::directory_iterator(checkpoints)) found.push_back(entry.path().filename());
    std::sort(found.begin(), found.end());
    return found;
  }
};

const std::vector<std::string> later = {"step-000008", "step-000012"};

TEST(Timeline, WhatIsAbandonedIsKeptBesideWithItsMetrics) {
  const TestRun run({4, 8, 12});
  link_best(run.checkpoints, "step-000008");
  const Abandoned gone = abandon(base::real_files(), run.checkpoints, later, "step-000004", run.metrics);
  EXPECT_EQ(gone.folder, run.checkpoints / "abandoned-1");
  EXPECT_EQ(run.living(), Steps{4});
  EXPECT_EQ(run.best(), "step-000004");
  EXPECT_EQ(base::read_text(gone.folder / "step-000012" / "manifest.json"), "12");
  EXPECT_EQ(base::read_text(gone.folder / "metrics.jsonl"), "all the lines\n");
  EXPECT_EQ(find_abandoned(run.checkpoints, "step-000012"), gone.folder / "step-000012");

  run.add(8);  // the new timeline has one too, and turns away from it in its turn
  abandon(base::real_files(), run.checkpoints, {"step-000008"}, "", run.metrics);
  EXPECT_EQ(find_abandoned(run.checkpoints, "step-000008"), run.checkpoints / "abandoned-2" / "step-000008");
  EXPECT_EQ(run.best(), "step-000004") << "a link to what stays is left alone";
  EXPECT_FALSE(find_abandoned(run.checkpoints, "step-000004"));
  EXPECT_EQ(run.names(), (std::vector<std::string>{"abandoned-1", "abandoned-2", "best", "step-000004"}));
}

TEST(Timeline, NothingToSetAsideTouchesNothing) {
  const TestRun run({4});
  EXPECT_TRUE(abandon(base::real_files(), run.checkpoints, {}, "", run.metrics).names.empty());
  EXPECT_FALSE(finish_abandoning(base::real_files(), run.checkpoints, run.metrics));
  EXPECT_FALSE(finish_abandoning(base::real_files(), run.checkpoints / "nowhere", run.metrics));
  EXPECT_EQ(run.names(), std::vector<std::string>{"step-000004"});
}

// Killed, or without power, at the n-th operation: either nothing has happened, or none of the later ones counts any more; the next
// start finishes the move, and no checkpoint is ever lost.
TEST(Timeline, CutShortAtEveryMoment) {
  for (const int ending : {0, 1, 2}) {  // killed; power lost, names kept; power lost, unsynced names gone
    bool finished = false;
    for (std::int64_t n = 0; !finished; ++n) {
      const TestRun run({4, 8, 12});
      link_best(run.checkpoints, "step-000012");
      FaultyFiles files;
      files.crash_at = n;
      try {
        abandon(files, run.checkpoints, later, "", run.metrics);
      } catch (const base::UserError&) {
      }
      finished = !files.crashed();
      if (ending > 0) files.lose_power(/*keep_names=*/ending == 1);
      const Steps living = run.living();
      EXPECT_TRUE(living == (Steps{4}) || (!finished && living == (Steps{4, 8, 12}))) << n;
      finish_abandoning(base::real_files(), run.checkpoints, run.metrics);
      EXPECT_EQ(run.living(), living) << "the next start decides nothing anew";
      if (living.size() > 1) continue;
      for (const std::string& name : later) EXPECT_TRUE(fs::exists(run.checkpoints / "abandoned-1" / name / "manifest.json")) << n;
      EXPECT_FALSE(fs::is_symlink(run.checkpoints / "best"));
      EXPECT_FALSE(fs::exists(run.checkpoints / "abandoning.json"));
    }
  }
}

}  // namespace
}  // namespace lockstep::journal
