// A file system that breaks on purpose: the n-th operation fails, the disk fills up, the machine loses power.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <filesystem>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <vector>

#include "base/error.h"
#include "base/files.h"

namespace lockstep::support {

// Works on real files below, but never waits for the disk: a sync only marks what would last. Thread-safe.
class FaultyFiles final : public base::FileSystem {
 public:
  static constexpr std::int64_t never = std::numeric_limits<std::int64_t>::max();

  std::int64_t fail_at = never;     // this operation (from 0) fails once
  std::int64_t crash_at = never;    // from this operation on nothing works anymore; a write gets half done
  std::int64_t disk_bytes = never;  // what fits in all; removing files makes room
  std::string fail_text = "Input/output error";
  std::int64_t stale_looks = 0;  // size() and read_at() first answer so often for every file as if half were not written yet, or nothing

  std::int64_t operations() const { return operations_; }
  bool crashed() const { return operations_ > crash_at; }

  // What a disk may look like after the power came back: unsynced bytes are gone (of a shared file: read as 0, whoever else has synced it),
  // and, unless `keep_names`, so are new names and renames in directories that were not synced since.
  void lose_power(bool keep_names);

  std::unique_ptr<base::FileWriter> create(const std::filesystem::path& path) override;
  std::unique_ptr<base::FileWriter> open_to_share(const std::filesystem::path& path, std::uint64_t size) override;
  std::unique_ptr<base::FileAppender> open_to_append(const std::filesystem::path& path) override;
  void rename(const std::filesystem::path& from, const std::filesystem::path& to) override;
  void sync_directory(const std::filesystem::path& path) override;
  void create_directories(const std::filesystem::path& path) override;
  void remove_all(const std::filesystem::path& path) override;
  std::optional<std::uint64_t> size(const std::filesystem::path& path) override;
  std::size_t read_at(const std::filesystem::path& path, std::uint64_t offset, std::span<std::byte> bytes) override;

 private:
  class Writer;
  class SharedWriter;
  class Appender;
  struct Range {
    std::uint64_t begin, end;
    const void* writer;  // whose sync makes it last
  };
  // As many of these bytes as the disk has room for, which `path` then takes up.
  std::size_t take_room(const std::filesystem::path& path, std::size_t bytes);
  // The same for a range of a shared file: what was written there before takes up no more.
  std::size_t take_room(const std::filesystem::path& path, std::uint64_t begin, std::size_t bytes);
  struct NameChange {
    std::filesystem::path from;  // empty: made anew
    std::filesystem::path to;
  };
  void step(std::string_view doing, const std::filesystem::path& path);
  // What was under `from` is known under `to` from now on.
  void follow(const std::filesystem::path& from, const std::filesystem::path& to);

  mutable std::recursive_mutex mutex_;
  std::int64_t operations_ = 0;
  std::set<std::filesystem::path> unsynced_files_;
  std::map<std::filesystem::path, std::vector<Range>> unsynced_ranges_;                     // of shared files
  std::map<std::filesystem::path, std::map<std::uint64_t, std::uint64_t>> written_ranges_;  // of shared files: begin to end, none overlap
  std::vector<NameChange> unsynced_names_;
  std::map<std::filesystem::path, std::int64_t> sizes_;
  std::map<std::filesystem::path, std::int64_t> looks_;
};

}  // namespace lockstep::support
