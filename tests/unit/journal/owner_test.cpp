// A folder of checkpoints belongs to one run, also when run folders are moved, copied or deleted.
#include "journal/owner.h"

#include <gtest/gtest.h>

#include <fstream>

#include "base/error.h"
#include "support/temporary_folder.h"

namespace lockstep::journal {
namespace {

namespace fs = std::filesystem;

class OwnerTest : public ::testing::Test {
 protected:
  RunFolder run(const std::string& name) {
    const RunFolder made{folder_.path() / "runs" / name};
    fs::create_directories(made.root);
    std::ofstream(made.config()) << "name: " << name;
    return made;
  }
  void add_checkpoint(const fs::path& checkpoints) {
    fs::create_directories(checkpoints / "step-000004");
    std::ofstream(checkpoints / "step-000004" / "manifest.json") << "{}";
  }
  // Empty where the folder is this run's now.
  std::string refusal(const RunFolder& of, const fs::path& checkpoints, bool resumes = true) {
    try {
      claim_checkpoints(base::real_files(), of, checkpoints, resumes);
      return "";
    } catch (const base::UserError& error) {
      EXPECT_EQ(error.code(), base::ExitCode::usage);
      return error.what();
    }
  }
  support::TemporaryFolder folder_;
  fs::path shared_ = folder_.path() / "shared";
};

TEST_F(OwnerTest, TheFirstRunOwnsItAndIsNamedToOthers) {
  const RunFolder a = run("a"), b = run("b");
  EXPECT_EQ(refusal(a, shared_, false), "");
  add_checkpoint(shared_);
  EXPECT_EQ(refusal(a, shared_, true), "");
  EXPECT_EQ(owner_of(shared_)->run, a.root);
  for (const bool resumes : {true, false}) {
    const std::string text = refusal(b, shared_, resumes);
    EXPECT_NE(text.find("belongs to the run " + a.root.string()), std::string::npos) << text;
    EXPECT_NE(text.find("--name a --resume auto"), std::string::npos) << text;
  }
}

TEST_F(OwnerTest, FollowsARunThatIsMoved) {
  const RunFolder a = run("a");
  ASSERT_EQ(refusal(a, shared_), "");
  const RunFolder moved{folder_.path() / "runs" / "moved"};
  fs::rename(a.root, moved.root);
  EXPECT_EQ(refusal(moved, shared_), "");
  EXPECT_EQ(owner_of(shared_)->run, moved.root);
}

TEST_F(OwnerTest, ACopyOfTheRunFolderIsAnotherRun) {
  const RunFolder a = run("a");
  ASSERT_EQ(refusal(a, shared_), "");
  const RunFolder copy{folder_.path() / "runs" / "copy"};
  fs::copy(a.root, copy.root, fs::copy_options::recursive);
  EXPECT_NE(refusal(copy, shared_), "");
  EXPECT_EQ(refusal(a, shared_), "");
}

TEST_F(OwnerTest, ARunMadeAnewUnderAnOldNameIsAnotherRun) {
  RunFolder a = run("a");
  ASSERT_EQ(refusal(a, shared_), "");
  fs::remove_all(a.root);
  a = run("a");
  EXPECT_NE(refusal(a, shared_).find("owner.json if that run is gone"), std::string::npos);
}

TEST_F(OwnerTest, AnotherRunsOwnFolderIsRefused) {
  const RunFolder a = run("a"), b = run("b");
  EXPECT_NE(refusal(b, a.checkpoints()).find("belongs to the run " + a.root.string()), std::string::npos);
  EXPECT_EQ(refusal(a, a.checkpoints()), "");
  EXPECT_EQ(refusal(a, a.root / "." / "checkpoints"), "");
  EXPECT_FALSE(fs::exists(a.root / "run_id")) << "the usual place needs no mark";
}

TEST_F(OwnerTest, CheckpointsThatNobodyOwnsAreOnlyGoneOnFrom) {
  const RunFolder a = run("a");
  add_checkpoint(shared_);
  EXPECT_NE(refusal(a, shared_, false).find("already holds checkpoints"), std::string::npos);
  EXPECT_FALSE(owner_of(shared_));
  EXPECT_EQ(refusal(a, shared_, true), "");
  EXPECT_TRUE(owner_of(shared_));
}

}  // namespace
}  // namespace lockstep::journal
