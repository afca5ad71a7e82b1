// The real file system behind the seam: what is written is there, and errors name the path and the reason.
#include <gtest/gtest.h>

#include <cstdlib>

#include "base/error.h"
#include "base/files.h"
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
  EXPECT_EQ(error_of([&] { real_files().rename(missing, folder.path() / "to"); }),
            "[files] cannot rename to " + (folder.path() / "to").string() + reason + ".");
  EXPECT_EQ(error_of([&] { real_files().sync_directory(missing); }), "[files] cannot open " + missing.string() + reason + ".");
  EXPECT_EQ(error_of([&] { MappedFile file(missing); }), "[files] cannot open " + missing.string() + reason + ".");
  EXPECT_EQ(error_of([&] { MappedFile file(folder.path()); }), "[files] cannot map " + folder.path().string() + ": Is a directory.");
  EXPECT_NE(error_of([&] { read_text(missing); }), "no error");
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

}  // namespace
}  // namespace lockstep::base
