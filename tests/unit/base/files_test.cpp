// The real file system behind the seam: what is written is there, and errors name the path and the reason.
#include <gtest/gtest.h>

#include <cstdlib>

#include "base/error.h"
#include "base/file/last_name.h"
#include "base/files.h"
#include "base/hash/crc32c.h"
#include "support/temporary_folder.h"

namespace lockstep::base {
namespace {

struct Free {
  void operator()(void* memory) const { std::free(memory); }
};

// Small, large, aligned and not: some pieces pass the page cache, some do not, and the file is the same.
TEST(Files, PiecesOfAnySizeAndAlignmentAreWrittenInOrder) {
  constexpr std::size_t memory_bytes = 12u << 20;
  const std::unique_ptr<std::byte, Free> memory(static_cast<std::byte*>(std::aligned_alloc(4096, memory_bytes)));
  for (std::size_t i = 0; i < memory_bytes; ++i) memory.get()[i] = static_cast<std::byte>(i * 2654435761u >> 13);
  const std::span<const std::byte> all(memory.get(), memory_bytes);
  const std::vector<std::vector<std::pair<std::size_t, std::size_t>>> cases = {
      {{0, 4096}, {4096, 8u << 20}},                                   // aligned all through
      {{0, 4096}, {8192, (5u << 20) + 17}, {0, 3}, {4096, 2u << 20}},  // a tail that is not, then never again
      {{1, 2u << 20}, {4096, 2u << 20}},                               // memory, then the place in the file, not aligned
      {{0, 100}, {4096, 3u << 20}, {0, 0}},
      {{0, 2u << 20}, {0, 4096}, {0, 2u << 20}, {4096, 10}, {0, 1u << 20}},  // in and out
  };
  const support::TemporaryFolder folder;
  for (const auto& pieces : cases) {
    const auto path = folder.path() / "file";
    auto file = real_files().create(path);
    std::string expected;
    for (const auto& [at, size] : pieces) {
      file->write(all.subspan(at, size));
      expected.append(reinterpret_cast<const char*>(all.data()) + at, size);
    }
    file->sync_and_close();
    EXPECT_TRUE(read_text(path) == expected);
  }
}

// Several processes write one file, each its ranges, in any order; borders lie anywhere. Memory is placed as the file is, and is not.
TEST(Files, RangesOfASharedFileGiveTheWhole) {
  constexpr std::size_t bytes = (9u << 20) + 4321;
  const std::unique_ptr<std::byte, Free> memory(static_cast<std::byte*>(std::aligned_alloc(4096, (bytes + 2 * 4096) / 4096 * 4096)));
  const std::vector<std::vector<std::uint64_t>> cuts = {
      {},                                                 // one writer
      {4096, 5u << 20, 8u << 20},                         // borders at pages
      {1, 17, (3u << 20) + 5, (3u << 20) + 6, 4u << 20},  // in the middle of pages; two borders in one
      {4095, 4096, 4097, (6u << 20) - 1, bytes - 1},
  };
  const support::TemporaryFolder folder;
  const auto path = folder.path() / "file";
  for (const std::size_t shift : {0, 1}) {
    const std::span<std::byte> all(memory.get() + shift, bytes);
    for (std::size_t i = 0; i < bytes; ++i) all[i] = static_cast<std::byte>(i * 2654435761u >> 13);
    const std::uint32_t checksum = crc32c(all);
    for (std::vector<std::uint64_t> borders : cuts) {
      std::filesystem::remove(path);
      write_text_atomically(real_files(), path, std::string(borders.size() % 2 * (bytes + 500), '!'));  // what an earlier attempt left
      borders.insert(borders.begin(), 0);
      borders.push_back(bytes);
      std::vector<std::unique_ptr<FileWriter>> writers;
      for (std::size_t i = 0; i + 1 < borders.size(); ++i) writers.push_back(real_files().open_to_share(path, bytes));
      std::vector<std::uint32_t> checksums(writers.size());
      for (std::size_t i = writers.size(); i-- > 0;) {  // the last range first
        const auto range = all.subspan(borders[i], borders[i + 1] - borders[i]);
        const std::size_t half = range.size() / 2;
        writers[i]->write_at(borders[i] + half, range.subspan(half));
        writers[i]->write_at(borders[i], range.first(half));
        checksums[i] = crc32c(range);
      }
      std::uint32_t joined = 0;
      for (std::size_t i = 0; i < writers.size(); ++i) {
        writers[i]->sync_and_close();
        joined = crc32c_combine(joined, checksums[i], borders[i + 1] - borders[i]);
      }
      EXPECT_EQ(joined, checksum);
      const std::string text = read_text(path);
      EXPECT_TRUE(text == std::string_view(reinterpret_cast<const char*>(all.data()), bytes))
          << borders.size() << " borders, shift " << shift;
    }
  }
}

TEST(Files, ErrorsNameThePathAndTheReason) {
  const support::TemporaryFolder folder;
  const auto missing = folder.path() / "none" / "file";
  const auto error_of = [](const std::function<void()>& action) -> std::string {
    try {
      action();
      return "no error";
    } catch (const UserError& error) {
      return error.what();
    }
  };
  const std::string reason = ": No such file or directory";
  EXPECT_EQ(error_of([&] { real_files().create(missing); }), "[files] cannot create " + missing.string() + reason + ".");
  EXPECT_EQ(error_of([&] { real_files().open_to_share(missing, 7); }), "[files] cannot create " + missing.string() + reason + ".");
  EXPECT_EQ(error_of([&] { real_files().rename(missing, folder.path() / "to"); }),
            "[files] cannot rename to " + (folder.path() / "to").string() + reason + ".");
  EXPECT_EQ(error_of([&] { real_files().sync_directory(missing); }), "[files] cannot open " + missing.string() + reason + ".");
  EXPECT_EQ(error_of([&] { MappedFile file(missing); }), "[files] cannot open " + missing.string() + reason + ".");
  EXPECT_EQ(error_of([&] { MappedFile file(folder.path()); }),
            "[files] cannot map " + folder.path().string() + ": Is a directory: it is a folder, and a file is needed there.");
  EXPECT_EQ(error_of([&] { read_text(missing); }), "[files] cannot read " + missing.string() + reason + ".");
  EXPECT_EQ(error_of([&] { read_text(folder.path()); }),
            "[files] cannot read " + folder.path().string() + ": Is a directory: it is a folder, and a file is needed there.");
  // A file in place of a folder is named, however far up it is.
  const auto file = folder.path() / "file";
  write_text_atomically(real_files(), file, "text");
  const std::string in_the_way = ": Not a directory: " + file.string() + " is a file, and a folder is needed there.";
  const auto below = file / "a" / "b";
  EXPECT_EQ(error_of([&] { read_text(below); }), "[files] cannot read " + below.string() + in_the_way);
  EXPECT_EQ(error_of([&] { real_files().create_directories(below); }),
            "[files] cannot create the folder " + below.string() + in_the_way + " Choose a folder you may write to with --output.");
  EXPECT_EQ(error_of([&] { real_files().create(below); }),
            "[files] cannot create " + below.string() + in_the_way + " Choose a folder you may write to with --output.");
  // Every write to this device fails as on a full disk.
  const std::string full = error_of([&] { real_files().create("/dev/full")->write(std::as_bytes(std::span("text"))); });
  EXPECT_NE(full.find("[files] cannot write /dev/full: No space left on device. Free some space"), std::string::npos) << full;
}

TEST(Files, AtomicTextIsOldOrNew) {
  const support::TemporaryFolder folder;
  const auto path = folder.path() / "text";
  write_text_atomically(real_files(), path, "old");
  write_text_atomically(real_files(), path, "new");
  EXPECT_EQ(read_text(path), "new");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path()), {}), 1);
}

TEST(Files, AFolderHasItsNameHoweverAPathEnds) {
  for (const char* path : {"runs/nano", "runs/nano/", "runs/nano//", "runs/nano/.", "/a/../nano/", "nano", "nano/x/.."})
    EXPECT_EQ(last_name(path), "nano") << path;
  EXPECT_EQ(last_name("."), std::filesystem::current_path().filename());
  EXPECT_EQ(last_name(""), "");
  EXPECT_EQ(last_name("/"), "");
}

}  // namespace
}  // namespace lockstep::base
