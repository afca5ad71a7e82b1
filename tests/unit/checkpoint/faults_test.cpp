// Saves that break at every possible moment: the checkpoint before stays, the error is clear, the next save works.
#include <gtest/gtest.h>

#include <fstream>

#include "base/clock.h"
#include "base/error.h"
#include "rank/checkpoint/manifest.h"
#include "rank/checkpoint/save.h"
#include "support/files/faulty_files.h"
#include "support/temporary_folder.h"
#include "unit/checkpoint/contents.h"

namespace lockstep::checkpoint {
namespace {

namespace fs = std::filesystem;
using Names = std::vector<std::string>;
using support::FaultyFiles;

std::string error_from(Saver& saver) {
  try {
    saver.wait();
    return "";
  } catch (const base::UserError& error) {
    EXPECT_EQ(error.code(), base::ExitCode::checkpoint);
    return error.what();
  }
}

// Who writes: ranks that hold everything, or ranks of several machines, each with slices of its own.
struct Writers {
  int count;
  bool machines = false;

  Contents contents(std::size_t writer, std::int64_t version) const {
    return machines ? slices_of(contents_of(version), static_cast<int>(writer), count) : contents_of(version);
  }
  std::vector<std::unique_ptr<Saver>> savers(base::FileSystem& files, const fs::path& folder, std::int64_t keep) const {
    return make_savers(files, folder, count, {.several_machines = machines, .keep = keep, .cut = small_cut});
  }
};

// All savers begin; returns each one's error, empty where it had none.
std::vector<std::string> save_together(std::vector<std::unique_ptr<Saver>>& savers, std::int64_t step, std::int64_t version,
                                       bool machines = false) {
  const Writers writers{static_cast<int>(savers.size()), machines};
  for (std::size_t i = 0; i < savers.size(); ++i) savers[i]->begin(step, writers.contents(i, version));
  std::vector<std::string> errors;
  for (auto& saver : savers) errors.push_back(error_from(*saver));
  return errors;
}

// The same one after the other, writer 0 last: it finds all parts or an error and never has to wait, however busy the machine is.
std::vector<std::string> save_in_turn(std::vector<std::unique_ptr<Saver>>& savers, std::int64_t step, std::int64_t version,
                                      bool machines = false) {
  const Writers writers{static_cast<int>(savers.size()), machines};
  std::vector<std::string> errors(savers.size());
  for (std::size_t i = savers.size(); i-- > 0;) {
    savers[i]->begin(step, writers.contents(i, version));
    errors[i] = error_from(*savers[i]);
  }
  return errors;
}

std::int64_t version_of(const fs::path& checkpoint) {
  const std::string state = Reader(checkpoint).state_json();
  return std::stoll(state.substr(state.find(':') + 1));
}

// A network file system shows sizes of a while ago to whoever has looked at a file while it grew.
TEST(CheckpointFaults, StaleSizesOfOthersFilesAreLookedAtAgain) {
  const support::TemporaryFolder folder;
  FaultyFiles files;
  files.stale_looks = 5;
  auto savers = make_savers(files, folder.path(), 3, {.cut = small_cut});
  EXPECT_EQ(save_together(savers, 1, 1), Names(3));
  expect_holds(Reader(step_folder(folder.path(), 1)), 1);

  files.stale_looks = FaultyFiles::never;
  auto hasty = make_savers(files, folder.path(), 3, {.visible_s = 0.1, .cut = small_cut});
  const auto errors = save_together(hasty, 2, 2);
  EXPECT_NE(errors[0].find("should have"), std::string::npos) << errors[0];
  expect_holds(Reader(step_folder(folder.path(), 1)), 1);
}

// The operation fails once. Whatever it was, nothing half stays, and the same saver saves the next time.
TEST(CheckpointFaults, TheNthOperationFails) {
  for (const Writers& writers : {Writers{1}, Writers{3}, Writers{3, true}}) {
    for (std::int64_t n = 0;; ++n) {
      const support::TemporaryFolder folder;
      save(folder.path(), writers.count, 1, 1);
      FaultyFiles files;
      auto savers = writers.savers(files, folder.path(), 2);
      files.fail_at = n;
      const auto errors = save_together(savers, 2, 2, writers.machines);
      const bool reached = files.operations() > n;
      const auto newest = newest_whole(folder.path(), nullptr);
      ASSERT_TRUE(newest) << n;
      expect_holds(Reader(*newest), version_of(*newest));
      expect_holds(Reader(step_folder(folder.path(), 1)), 1);
      if (!errors[0].empty()) {
        EXPECT_NE(errors[0].find("step 2 was not saved: "), std::string::npos) << errors[0];
        EXPECT_NE(errors[0].find("Input/output error"), std::string::npos) << errors[0];
        EXPECT_NE(errors[0].find("step-000001 is untouched"), std::string::npos) << errors[0];
      }
      files.fail_at = FaultyFiles::never;
      const auto again = save_together(savers, 3, 3, writers.machines);
      for (const auto& error : again) EXPECT_EQ(error, "") << "after operation " << n << " failed";
      expect_holds(Reader(step_folder(folder.path(), 3)), 3);
      for (const auto& name : listing(folder.path()))
        EXPECT_EQ(name.find('.'), std::string::npos) << name << " is left after operation " << n;
      if (!reached) {
        EXPECT_EQ(errors[0], "");
        break;
      }
    }
  }
}

// Another process owns the folder now: what is there, also what it is just writing, is left alone.
TEST(CheckpointFaults, AWriterThatLostTheFolderWritesNothingMore) {
  for (const int allowed : {0, 1}) {  // before it cleans up; before its save becomes whole
    const support::TemporaryFolder folder;
    save(folder.path(), 1, 1, 1);
    fs::create_directories(step_folder(folder.path(), 7, StepFolder::State::partial));
    FaultyFiles files;
    int asked = 0;
    auto savers = make_savers(files, folder.path(), 1, {.may_write = [&] {
                                if (asked++ >= allowed) throw base::checkpoint_error("checkpoint", "another process has taken over");
                              }});
    fs::create_directories(step_folder(folder.path(), 7, StepFolder::State::partial));
    EXPECT_NE(save_together(savers, 2, 2)[0].find("another process has taken over"), std::string::npos);
    EXPECT_FALSE(fs::exists(step_folder(folder.path(), 2)));
    EXPECT_TRUE(allowed > 0 || fs::exists(step_folder(folder.path(), 7, StepFolder::State::partial)));
    expect_holds(Reader(step_folder(folder.path(), 1)), 1);
  }
}

// The power goes at the n-th operation, for good. `keep_names`: which of the two things a disk may do to unsynced names.
void lose_power_everywhere(const Writers& writers, std::int64_t old_step, std::int64_t new_step) {
  for (const bool keep_names : {true, false}) {
    bool finished = false;
    for (std::int64_t n = 0; !finished; ++n) {
      const support::TemporaryFolder folder;
      save(folder.path(), writers.count, old_step, 1);
      FaultyFiles files;
      files.crash_at = n;
      {
        auto savers = writers.savers(files, folder.path(), 1);
        save_in_turn(savers, new_step, 2, writers.machines);
      }
      finished = !files.crashed();
      files.lose_power(keep_names);

      std::vector<std::string> skipped;
      const auto newest = newest_whole(folder.path(), &skipped);
      ASSERT_TRUE(newest) << "nothing whole is left after losing power at operation " << n;
      const std::int64_t version = version_of(*newest);
      EXPECT_TRUE(version == 1 || version == 2);
      EXPECT_TRUE(!finished || version == 2);
      expect_holds(Reader(*newest), version);

      save(folder.path(), writers.count, new_step + 1, 3, 1);  // the next run, on a sound machine
      EXPECT_EQ(listing(folder.path()), Names{step_folder("", new_step + 1).string()});
      expect_holds(Reader(step_folder(folder.path(), new_step + 1)), 3);
    }
  }
}

TEST(CheckpointFaults, PowerIsLostAtTheNthOperation) {
  lose_power_everywhere({1}, 1, 2);
  lose_power_everywhere({2}, 1, 2);
  lose_power_everywhere({2, true}, 1, 2);
}
TEST(CheckpointFaults, PowerIsLostWhileACheckpointIsReplaced) { lose_power_everywhere({1}, 5, 5); }

TEST(CheckpointFaults, TheDiskIsFull) {
  for (const Writers& writers : {Writers{1}, Writers{2}, Writers{2, true}}) {
    const support::TemporaryFolder measured;
    save(measured.path(), writers.count, 1, 1);
    std::int64_t needed = 0;
    for (const auto& entry : fs::recursive_directory_iterator(measured.path()))
      needed += entry.is_regular_file() ? static_cast<std::int64_t>(entry.file_size()) : 0;
    for (const std::int64_t room :
         {std::int64_t{0}, std::int64_t{1}, std::int64_t{100}, std::int64_t{5000}, needed / 3, needed / 2, needed - 5000, needed - 1}) {
      const support::TemporaryFolder folder;
      save(folder.path(), writers.count, 1, 1);
      FaultyFiles files;
      files.disk_bytes = room;
      auto savers = writers.savers(files, folder.path(), 3);
      const auto errors = save_in_turn(savers, 2, 2, writers.machines);
      EXPECT_NE(errors[0].find("No space left on device"), std::string::npos) << room << ": " << errors[0];
      EXPECT_NE(errors[0].find("step-000001 is untouched"), std::string::npos) << errors[0];
      EXPECT_EQ(newest_whole(folder.path(), nullptr)->filename(), "step-000001");
      files.disk_bytes = FaultyFiles::never;
      for (const auto& error : save_in_turn(savers, 2, 4, writers.machines)) EXPECT_EQ(error, "");
      expect_holds(Reader(step_folder(folder.path(), 2)), 4);
      EXPECT_EQ(listing(folder.path()), (Names{"step-000001", "step-000002"}));
    }
  }
}

TEST(CheckpointFaults, AFolderThatCannotBeMade) {
  const support::TemporaryFolder folder;
  Saver saver(base::real_files(), {.folder = "/proc/lockstep/checkpoints"});
  saver.begin(1, contents_of(1));
  try {
    saver.wait();
    FAIL();
  } catch (const base::UserError& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find("[checkpoint] step 1 was not saved: cannot create the folder /proc/lockstep/checkpoints/step-000001.partial"),
              std::string::npos)
        << text;
    EXPECT_NE(text.find("There is no earlier checkpoint."), std::string::npos) << text;
  }
  EXPECT_FALSE(saver.take_error());
}

TEST(CheckpointFaults, OneWritersErrorIsToldByWriterZeroToo) {
  const support::TemporaryFolder folder;
  FaultyFiles broken;
  broken.fail_at = 2;
  Saver zero(base::real_files(), {.folder = folder.path(), .share = {0, 2}});
  Saver one(broken, {.folder = folder.path(), .share = {1, 2}});
  one.begin(7, contents_of(1));
  EXPECT_THROW(one.wait(), base::UserError);
  zero.begin(7, contents_of(1));
  try {
    zero.wait();
    FAIL();
  } catch (const base::UserError& error) {
    EXPECT_NE(std::string(error.what()).find("rank 1 could not write its share: cannot write"), std::string::npos) << error.what();
  }
  EXPECT_TRUE(listing(folder.path()).empty());
}

TEST(CheckpointFaults, AWriterThatNeverComes) {
  const support::TemporaryFolder folder;
  save(folder.path(), 1, 1, 1);
  Saver saver(base::real_files(), {.folder = folder.path(), .share = {0, 3}, .peer_timeout_s = 0.1});
  saver.begin(2, contents_of(2));
  try {
    saver.wait();
    FAIL();
  } catch (const base::UserError& error) {
    EXPECT_NE(std::string(error.what()).find("rank 1 did not write its share"), std::string::npos) << error.what();
  }
  EXPECT_EQ(listing(folder.path()), Names{"step-000001"});
}

// A slow writer is not a dead one: patience is measured from the last byte that anybody wrote.
TEST(CheckpointFaults, ProgressOfOthersKeepsWriterZeroWaiting) {
  const support::TemporaryFolder folder;
  FaultyFiles files;
  const Saver::Options options{.folder = folder.path(), .share = {0, 2}};
  const std::int64_t start = base::now_ns();
  double quiet_for = 1e9, waited = 0;
  int asked = 0;
  SaveWriter writer(files, options, [&](double quiet_s) {
    quiet_for = asked < 15 ? quiet_for : std::min(quiet_for, quiet_s);
    std::ofstream(folder.path() / "step-000001.partial" / "model-00002-of-00002.safetensors", std::ios::app) << "more";
    waited = base::seconds_since(start);
    return ++asked < 20;
  });
  Staging staging;
  const Contents contents = contents_of(1);
  const Save save = cut_save(1, 1, contents, options);
  writer.write_part(save, [&] { return staging.copy(contents, save.files, save.turns.at(0)); });
  EXPECT_THROW(writer.finish(save), base::UserError);
  EXPECT_EQ(asked, 20);
  EXPECT_LT(quiet_for, waited / 2);
}

TEST(CheckpointFaults, TheDestructorDoesNotWaitForTheDead) {
  const support::TemporaryFolder folder;
  {
    Saver saver(base::real_files(), {.folder = folder.path(), .share = {0, 2}, .peer_timeout_s = 100000, .closing_grace_s = 0.05});
    saver.begin(2, contents_of(2));
  }
  EXPECT_TRUE(listing(folder.path()).empty());
}

TEST(CheckpointFaults, TheDestructorFinishesWhatCanBeFinished) {
  const support::TemporaryFolder folder;
  {
    Saver saver(base::real_files(), {.folder = folder.path()});
    saver.begin(2, contents_of(2));
  }
  expect_holds(Reader(newest_whole(folder.path(), nullptr).value()), 2);
}

// What another attempt at the same step left must not be taken for this one's.
TEST(CheckpointFaults, PartsOfAnEarlierAttemptAreNotUsed) {
  const support::TemporaryFolder folder;
  Saver zero(base::real_files(), {.folder = folder.path(), .share = {0, 2}, .peer_timeout_s = 0.1});
  Saver one(base::real_files(), {.folder = folder.path(), .share = {1, 2}});
  zero.begin(3, contents_of(1));
  EXPECT_THROW(zero.wait(), base::UserError);
  one.begin(3, contents_of(1));  // too late: writer 0 has given up
  one.wait();
  EXPECT_EQ(listing(folder.path()), Names{"step-000003.partial"});
  zero.begin(3, contents_of(2));
  EXPECT_THROW(zero.wait(), base::UserError);  // only the stale part is there
  one.begin(3, contents_of(2));
  one.wait();
  auto both = [&](std::int64_t step, std::int64_t version) {
    one.begin(step, contents_of(version));
    one.wait();
    zero.begin(step, contents_of(version));
    zero.wait();
  };
  both(4, 4);
  expect_holds(Reader(step_folder(folder.path(), 4)), 4);
  EXPECT_EQ(listing(folder.path()), Names{"step-000004"});
}

TEST(CheckpointFaults, ErrorsAreToldOnce) {
  const support::TemporaryFolder folder;
  FaultyFiles files;
  files.fail_at = 1;
  Saver saver(files, {.folder = folder.path(), .asynchronous = false});
  saver.begin(1, contents_of(1));
  const auto error = saver.take_error();
  ASSERT_TRUE(error);
  EXPECT_FALSE(saver.take_error());
  saver.wait();
}

}  // namespace
}  // namespace lockstep::checkpoint
