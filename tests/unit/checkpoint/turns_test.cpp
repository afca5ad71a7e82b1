// Copies that take less host memory than what is saved: the same files, whatever breaks, and training waits for the disk.
#include <gtest/gtest.h>

#include <chrono>
#include <future>

#include "base/error.h"
#include "rank/checkpoint/cut.h"
#include "rank/checkpoint/handover.h"
#include "rank/checkpoint/manifest.h"
#include "support/temporary_folder.h"
#include "unit/checkpoint/contents.h"
#include "unit/checkpoint/error_of.h"

namespace lockstep::checkpoint {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;

constexpr std::uint64_t two_pages = 2 * page_bytes;  // of staging: turns of one page

std::map<std::string, std::string> files_of(const fs::path& checkpoint) {
  std::map<std::string, std::string> files;
  for (const std::string& name : listing(checkpoint)) {
    if (name != "manifest.json") files[name] = base::read_text(checkpoint / name);
  }
  return files;
}

void save_in_turns(base::FileSystem& files, const fs::path& folder, int writers, std::uint64_t staging_bytes, std::int64_t version) {
  auto savers = make_savers(files, folder, writers, {.staging_bytes = staging_bytes, .cut = small_cut});
  std::vector<std::future<void>> begun;  // each waits for its own disk
  for (auto& saver : savers) begun.push_back(std::async(std::launch::async, [&saver, version] { saver->begin(7, contents_of(version)); }));
  for (auto& one : begun) one.get();
  for (auto& saver : savers) saver->wait();
}

// A disk that writes nothing until it is told to.
class HeldFiles final : public base::FileSystem {
 public:
  std::promise<void> release;

  std::unique_ptr<base::FileWriter> create(const fs::path& path) override { return below_.create(path); }
  std::unique_ptr<base::FileWriter> open_to_share(const fs::path& path, std::uint64_t size) override {
    return std::make_unique<Writer>(below_.open_to_share(path, size), released_);
  }
  std::unique_ptr<base::FileAppender> open_to_append(const fs::path& path) override { return below_.open_to_append(path); }
  void rename(const fs::path& from, const fs::path& to) override { below_.rename(from, to); }
  void sync_directory(const fs::path& path) override { below_.sync_directory(path); }
  void create_directories(const fs::path& path) override { below_.create_directories(path); }
  void remove_all(const fs::path& path) override { below_.remove_all(path); }
  std::optional<std::uint64_t> size(const fs::path& path) override { return below_.size(path); }
  std::size_t read_at(const fs::path& path, std::uint64_t offset, std::span<std::byte> bytes) override {
    return below_.read_at(path, offset, bytes);
  }

 private:
  class Writer final : public base::FileWriter {
   public:
    Writer(std::unique_ptr<base::FileWriter> below, std::shared_future<void> released)
        : below_(std::move(below)), released_(std::move(released)) {}
    void write_at(std::uint64_t offset, std::span<const std::byte> bytes) override {
      released_.wait();
      below_->write_at(offset, bytes);
    }
    void sync_and_close() override { below_->sync_and_close(); }

   private:
    std::unique_ptr<base::FileWriter> below_;
    std::shared_future<void> released_;
  };
  support::FaultyFiles below_;
  std::shared_future<void> released_ = release.get_future().share();
};

TEST(CheckpointTurns, CoverEveryRangeOnceWithinTheirMemory) {
  const std::vector<FileRange> ranges = {{0, 0, 10'000}, {0, 10'000, 10'001}, {1, 5000, 5000 + 9 * page_bytes}, {2, 4095, 4097}, {3, 1, 2}};
  for (const std::uint64_t most : {std::uint64_t{0}, page_bytes, 3 * page_bytes, std::uint64_t{50'000}, std::uint64_t{1} << 30}) {
    std::vector<FileRange> joined;
    for (const auto& turn : in_turns(ranges, most)) {
      ASSERT_FALSE(turn.empty());
      std::uint64_t staged = 0;
      for (const FileRange& range : turn) {
        ASSERT_LT(range.begin, range.end);
        staged += range.staged_bytes();
        if (joined.size() > 0 && joined.back().file == range.file && joined.back().end == range.begin && range.begin != 10'000) {
          EXPECT_EQ(range.begin % page_bytes, 0u) << "cut within a page";
          joined.back().end = range.end;
        } else {
          joined.push_back(range);
        }
      }
      EXPECT_LE(staged, std::max(most, page_bytes)) << most;
    }
    EXPECT_EQ(joined, ranges) << most;
  }
  EXPECT_EQ(in_turns(ranges, 1 << 30).size(), 1u);
  EXPECT_TRUE(in_turns({}, 1 << 30).empty());
}

TEST(CheckpointTurns, FilesDoNotTellHowMuchMemoryThereWas) {
  const support::TemporaryFolder first;
  save(first.path(), 1, 7, 3);
  for (const int writers : {1, 2, 5}) {
    for (const std::uint64_t bytes : {std::uint64_t{1}, two_pages, 5 * page_bytes, std::uint64_t{1} << 20}) {
      const support::TemporaryFolder folder;
      support::FaultyFiles files;
      save_in_turns(files, folder.path(), writers, bytes, 3);
      EXPECT_TRUE(files_of(step_folder(folder.path(), 7)) == files_of(step_folder(first.path(), 7))) << writers << " " << bytes;
      const Reader reader(step_folder(folder.path(), 7));
      reader.verify();
      expect_holds(reader, 3);
    }
  }
}

// Training changes its tensors when begin() returns, so it must not return before the last of them is copied.
TEST(CheckpointTurns, BeginWaitsForTheDisk) {
  const support::TemporaryFolder folder;
  HeldFiles files;
  Saver saver(files, {.folder = folder.path(), .staging_bytes = two_pages, .cut = small_cut});
  Contents contents = contents_of(3);
  auto begun = std::async(std::launch::async, [&] {
    saver.begin(7, contents);
    for (NamedTensor& tensor : contents.model) tensor.tensor.zero_();
    for (NamedTensor& tensor : contents.optimizer) tensor.tensor.zero_();
  });
  EXPECT_EQ(begun.wait_for(100ms), std::future_status::timeout) << "more was copied than the memory holds";
  files.release.set_value();
  begun.get();
  saver.wait();
  expect_holds(Reader(step_folder(folder.path(), 7)), 3);
}

TEST(CheckpointTurns, BeginDoesNotWaitWhereTheMemoryHoldsAll) {
  const support::TemporaryFolder folder;
  HeldFiles files;
  Saver saver(files, {.folder = folder.path(), .staging_bytes = 1 << 20, .cut = small_cut});
  saver.begin(7, contents_of(3));  // returns, or this test never ends
  EXPECT_TRUE(saver.busy());
  files.release.set_value();
  saver.wait();
}

TEST(CheckpointTurns, ADiskThatFailsInAnyTurnEndsTheCopy) {
  const support::TemporaryFolder counted;
  support::FaultyFiles counting;
  save_in_turns(counting, counted.path(), 1, two_pages, 1);
  ASSERT_GT(counting.operations(), 20);
  for (std::int64_t fail_at = 0; fail_at < counting.operations(); ++fail_at) {
    const support::TemporaryFolder folder;
    support::FaultyFiles files;
    Saver saver(files, {.folder = folder.path(), .staging_bytes = two_pages, .cut = small_cut});
    files.fail_at = fail_at;
    saver.begin(7, contents_of(1));
    const std::string error = error_of([&] { saver.wait(); });
    EXPECT_TRUE(error == "no error" || error.find("step 7 was not saved: ") != std::string::npos) << error;
    files.fail_at = support::FaultyFiles::never;
    saver.begin(8, contents_of(2));
    saver.wait();
    expect_holds(Reader(step_folder(folder.path(), 8)), 2);
  }
}

TEST(CheckpointTurns, ACopyThatFailsIsTheSavesError) {
  const support::TemporaryFolder folder;
  support::FaultyFiles files;
  auto savers = make_savers(files, folder.path(), 2, {.staging_bytes = two_pages, .cut = small_cut});
  Contents broken = contents_of(1);
  broken.optimizer.back().shape = {{1100}};  // more than it holds
  for (auto& saver : savers) saver->begin(7, broken);
  EXPECT_NE(error_of([&] { savers[1]->wait(); }).find("step 7 was not saved: copying it to host memory failed: "), std::string::npos);
  EXPECT_NE(error_of([&] { savers[0]->wait(); }).find("rank 1 could not write its share: copying it"), std::string::npos);
  for (auto& saver : savers) saver->begin(8, contents_of(2));
  for (auto& saver : savers) saver->wait();
  expect_holds(Reader(step_folder(folder.path(), 8)), 2);
}

}  // namespace
}  // namespace lockstep::checkpoint
