// Machines that share a folder and write whole pages of it: none may write a page that another writes, or bytes are lost.
#include <gtest/gtest.h>

#include <array>
#include <future>
#include <set>

#include "base/error.h"
#include "rank/checkpoint/cut.h"
#include "rank/checkpoint/manifest.h"
#include "support/temporary_folder.h"
#include "unit/checkpoint/contents.h"
#include "unit/checkpoint/error_of.h"

namespace lockstep::checkpoint {
namespace {

namespace fs = std::filesystem;

using Page = std::pair<std::string, std::uint64_t>;  // of which file, the how many-eth

// What a server has seen.
struct Server {
  std::mutex mutex;
  std::map<Page, std::set<int>> writers;       // machines that wrote to a page
  std::map<int, std::uint64_t> bytes_written;  // by machine
  std::set<std::string> names;
};

// One machine's view of the folder: a page that is written to is read first, and goes to the server whole when its file is synced. So do
// FUSE with its cache on and some network file systems.
class Machine final : public base::FileSystem {
 public:
  support::FaultyFiles below;

  Machine(Server& server, int number) : server_(server), number_(number) {}

  std::unique_ptr<base::FileWriter> create(const fs::path& path) override { return open(below.create(path), path, 0); }
  std::unique_ptr<base::FileWriter> open_to_share(const fs::path& path, std::uint64_t size) override {
    return open(below.open_to_share(path, size), path, size);
  }
  std::unique_ptr<base::FileAppender> open_to_append(const fs::path& path) override { return below.open_to_append(path); }
  void rename(const fs::path& from, const fs::path& to) override { below.rename(from, to); }
  void sync_directory(const fs::path& path) override { below.sync_directory(path); }
  void create_directories(const fs::path& path) override { below.create_directories(path); }
  void remove_all(const fs::path& path) override { below.remove_all(path); }
  std::optional<std::uint64_t> size(const fs::path& path) override { return below.size(path); }
  std::size_t read_at(const fs::path& path, std::uint64_t offset, std::span<std::byte> bytes) override {
    return below.read_at(path, offset, bytes);
  }

 private:
  class Writer final : public base::FileWriter {
   public:
    Writer(Machine& machine, std::unique_ptr<base::FileWriter> file, fs::path path, std::uint64_t size)
        : machine_(machine), file_(std::move(file)), path_(std::move(path)), size_(size) {}
    void write_at(std::uint64_t offset, std::span<const std::byte> bytes) override {
      size_ = std::max(size_, offset + bytes.size());
      while (!bytes.empty()) {
        const std::uint64_t within = offset % page_bytes;
        const std::size_t size = std::min<std::size_t>(bytes.size(), page_bytes - within);
        auto [page, fresh] = pages_.try_emplace(offset - within);
        if (fresh) base::real_files().read_at(path_, offset - within, page->second);
        std::copy_n(bytes.begin(), size, page->second.begin() + static_cast<std::ptrdiff_t>(within));
        bytes = bytes.subspan(size);
        offset += size;
      }
    }
    void sync_and_close() override {
      for (const auto& [offset, page] : pages_) {
        const auto size = std::min<std::uint64_t>(page_bytes, size_ - offset);
        file_->write_at(offset, std::span(page).first(size));
        machine_.note(path_, offset, size);
      }
      file_->sync_and_close();
    }

   private:
    Machine& machine_;
    std::unique_ptr<base::FileWriter> file_;
    fs::path path_;
    std::uint64_t size_;
    std::map<std::uint64_t, std::array<std::byte, page_bytes>> pages_;
  };

  std::unique_ptr<base::FileWriter> open(std::unique_ptr<base::FileWriter> file, const fs::path& path, std::uint64_t size) {
    const std::lock_guard lock(server_.mutex);
    server_.names.insert(path.filename().string());
    return std::make_unique<Writer>(*this, std::move(file), path, size);
  }
  void note(const fs::path& path, std::uint64_t offset, std::uint64_t bytes) {
    const std::lock_guard lock(server_.mutex);
    server_.writers[{path.filename().string(), offset / page_bytes}].insert(number_);
    server_.bytes_written[number_] += bytes;
  }

  Server& server_;
  int number_;
};

// Writers of several machines and what they see, in the order of their share.
struct Cluster {
  Server server;
  std::vector<std::unique_ptr<Machine>> machines;
  std::vector<std::unique_ptr<Saver>> savers;

  Cluster(const fs::path& folder, int writers, int each_machine, Saver::Options options = {}) {
    for (int writer = 0; writer < writers; ++writer) {
      if (writer % each_machine == 0) machines.push_back(std::make_unique<Machine>(server, writer / each_machine));
      options.folder = folder;
      options.share = {writer, writers};
      options.several_machines = each_machine < writers;
      options.cut = small_cut;
      savers.push_back(std::make_unique<Saver>(*machines.back(), options));
    }
  }
  // Every saver's error, empty where it had none.
  std::vector<std::string> save(std::int64_t step, std::int64_t version) {
    std::vector<std::future<void>> begun;  // each waits for its own disk
    for (int writer = 0; writer < count(); ++writer)
      begun.push_back(std::async(std::launch::async, [this, writer, step, version] {
        savers[static_cast<std::size_t>(writer)]->begin(step, slices_of(contents_of(version), writer, count()));
      }));
    for (auto& one : begun) one.get();
    std::vector<std::string> errors;
    for (auto& saver : savers) errors.push_back(error_of([&] { saver->wait(); }));
    return errors;
  }
  int count() const { return static_cast<int>(savers.size()); }
};
const std::string none = "no error";

TEST(CheckpointMachines, NoPageIsWrittenByTwo) {
  const support::TemporaryFolder first;
  save(first.path(), 1, 7, 3);
  const auto expected = tensor_files(step_folder(first.path(), 7));
  for (const auto& [writers, each_machine] : {std::pair{2, 1}, {3, 1}, {5, 1}, {4, 2}, {5, 2}, {40, 7}}) {
    for (const std::uint64_t staging_bytes : {std::uint64_t{0}, 2 * page_bytes}) {
      const support::TemporaryFolder folder;
      Cluster cluster(folder.path(), writers, each_machine, {.staging_bytes = staging_bytes});
      EXPECT_EQ(cluster.save(7, 3), std::vector<std::string>(static_cast<std::size_t>(writers), none));
      for (const auto& [page, machines] : cluster.server.writers)
        EXPECT_EQ(machines.size(), 1u) << "page " << page.second << " of " << page.first << ", " << writers << " writers";
      EXPECT_EQ(cluster.server.names.contains(edges_name(1)), true);
      EXPECT_TRUE(tensor_files(step_folder(folder.path(), 7)) == expected) << writers << ", " << each_machine << " a machine";
      const Reader reader(step_folder(folder.path(), 7));
      reader.verify();
      expect_holds(reader, 3);
    }
  }
}

// Ranks of one machine share its cache: each writes all that it has.
TEST(CheckpointMachines, OneMachinePutsNothingAside) {
  const support::TemporaryFolder folder;
  support::FaultyFiles files;
  auto savers = make_savers(files, folder.path(), 3, {.cut = small_cut});
  for (const int writer : {1, 2}) {
    savers[static_cast<std::size_t>(writer)]->begin(7, slices_of(contents_of(3), writer, 3));
    savers[static_cast<std::size_t>(writer)]->wait();
    EXPECT_FALSE(fs::exists(step_folder(folder.path(), 7, StepFolder::State::partial) / edges_name(writer)));
  }
}

// Equal shares are cut at pages: writers that hold everything put nothing aside on any number of machines.
TEST(CheckpointMachines, EqualSharesHaveNoEdges) {
  const support::TemporaryFolder folder;
  Cluster cluster(folder.path(), 3, 1);
  for (auto& saver : cluster.savers) saver->begin(7, contents_of(3));
  for (auto& saver : cluster.savers) saver->wait();
  for (const auto& [page, machines] : cluster.server.writers) EXPECT_EQ(machines.size(), 1u) << page.first << " " << page.second;
  for (int writer = 0; writer < 3; ++writer) EXPECT_FALSE(cluster.server.names.contains(edges_name(writer)));
  expect_holds(Reader(step_folder(folder.path(), 7)), 3);
}

TEST(CheckpointMachines, EdgesThatAreSeenLateAreLookedAtAgain) {
  const support::TemporaryFolder folder;
  Cluster cluster(folder.path(), 3, 1);
  cluster.machines[0]->below.stale_looks = 5;
  EXPECT_EQ(cluster.save(1, 1)[0], none);
  expect_holds(Reader(step_folder(folder.path(), 1)), 1);
}

// Something else at the place of what was put aside: the save fails, and says which file it was.
TEST(CheckpointMachines, DamagedEdgesAreNoCheckpoint) {
  const support::TemporaryFolder folder;
  Cluster cluster(folder.path(), 2, 1, {.visible_s = 0.1});
  const auto save_with = [&](const std::function<void(const fs::path&)>& damage) {
    cluster.savers[1]->begin(1, slices_of(contents_of(1), 1, 2));
    cluster.savers[1]->wait();
    damage(step_folder(folder.path(), 1, StepFolder::State::partial) / edges_name(1));
    cluster.savers[0]->begin(1, slices_of(contents_of(1), 0, 2));
    return error_of([&] { cluster.savers[0]->wait(); });
  };
  const std::pair<const char*, std::function<void(const fs::path&)>> cases[] = {
      {"one bit",
       [](const fs::path& path) {
         std::string content = base::read_text(path);
         content.back() ^= 1;
         base::write_text_atomically(base::real_files(), path, content);
       }},
      {"too short", [](const fs::path& path) { fs::resize_file(path, fs::file_size(path) - 1); }},
      {"gone", [](const fs::path& path) { fs::remove(path); }},
  };
  for (const auto& [what, damage] : cases) {
    EXPECT_NE(save_with(damage).find("part-1.edges does not hold what its writer put there"), std::string::npos) << what;
    EXPECT_TRUE(listing(folder.path()).empty()) << what;
  }
  EXPECT_EQ(save_with([](const fs::path&) {}), none);
  expect_holds(Reader(step_folder(folder.path(), 1)), 1);
}

TEST(CheckpointMachines, RangesAreCutWherePagesAreNotFilled) {
  struct Case {
    std::uint64_t begin, end, file_bytes;
    std::vector<std::tuple<std::uint64_t, std::uint64_t, bool>> stretches;
  };
  const Case cases[] = {
      {0, 8192, 9000, {{0, 8192, false}}},
      {0, 8193, 9000, {{0, 8192, false}, {8192, 8193, true}}},
      {1, 9000, 9000, {{1, 4096, true}, {4096, 9000, false}}},
      {4096, 5000, 5000, {{4096, 5000, false}}},
      {4096, 4999, 5000, {{4096, 4999, true}}},
      {4097, 5000, 5000, {{4097, 5000, true}}},
      {4000, 5000, 9000, {{4000, 5000, true}}},
      {4000, 5000, 5000, {{4000, 4096, true}, {4096, 5000, false}}},
      {10, 20'000, 30'000, {{10, 4096, true}, {4096, 16'384, false}, {16'384, 20'000, true}}},
  };
  for (const Case& wanted : cases) {
    std::vector<std::tuple<std::uint64_t, std::uint64_t, bool>> found;
    for (const auto& [range, edge] : cut_at_edges({3, wanted.begin, wanted.end}, wanted.file_bytes)) {
      EXPECT_EQ(range.file, 3u);
      found.emplace_back(range.begin, range.end, edge);
    }
    EXPECT_EQ(found, wanted.stretches) << wanted.begin << " to " << wanted.end << " of " << wanted.file_bytes;
  }
}

}  // namespace
}  // namespace lockstep::checkpoint
