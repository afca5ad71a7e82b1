// The seam to the file system: everything that must survive a crash is written through it, so that tests can break it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace lockstep::base {

// One file being written. sync_and_close() makes it last; a destructor without it leaves a file nobody may trust.
// Fastest in pieces of megabytes whose address in memory lies as far from a multiple of 4096 as their offset in the file.
class FileWriter {
 public:
  virtual ~FileWriter() = default;
  // From front to back: behind what the last write() wrote.
  void write(std::span<const std::byte> bytes) {
    write_at(end_, bytes);
    end_ += bytes.size();
  }
  virtual void write_at(std::uint64_t offset, std::span<const std::byte> bytes) = 0;
  virtual void sync_and_close() = 0;

 private:
  std::uint64_t end_ = 0;
};

// One file that grows at its end, for lines that people read: nothing is synced. A disk that fills up takes the first bytes of a piece.
class FileAppender {
 public:
  virtual ~FileAppender() = default;
  struct Result {
    std::size_t written = 0;
    std::string error = {};  // the system's reason why not all of it was; empty: it was
  };
  virtual Result append(std::string_view bytes) = 0;
};
// Over a descriptor that is open and stays so, as standard error does.
std::unique_ptr<FileAppender> append_to(int descriptor);

// Errors are UserError(ExitCode::checkpoint) that name the path and the system's reason ("No space left on device").
class FileSystem {
 public:
  virtual ~FileSystem() = default;
  virtual std::unique_ptr<FileWriter> create(const std::filesystem::path& path) = 0;
  // A file of `size` bytes that several processes write at once, each its own ranges: made where there is none, never emptied. What nobody
  // writes is 0, or what was there before. A sync is for this writer's ranges; others sync theirs.
  virtual std::unique_ptr<FileWriter> open_to_share(const std::filesystem::path& path, std::uint64_t size) = 0;
  virtual std::unique_ptr<FileAppender> open_to_append(const std::filesystem::path& path) = 0;  // makes it where there is none
  virtual void rename(const std::filesystem::path& from, const std::filesystem::path& to) = 0;
  virtual void sync_directory(const std::filesystem::path& path) = 0;
  virtual void create_directories(const std::filesystem::path& path) = 0;
  virtual void remove_all(const std::filesystem::path& path) = 0;
  // Of a file that another process, perhaps of another machine, has written: nothing where it is not to be seen. The file is opened, so
  // that a network file system asks its server; even so it may answer from what it remembers for a while.
  virtual std::optional<std::uint64_t> size(const std::filesystem::path& path) = 0;
  // Of such a file: how many of these bytes are to be seen. Those there are stand in `bytes`.
  virtual std::size_t read_at(const std::filesystem::path& path, std::uint64_t offset, std::span<std::byte> bytes) = 0;
};

FileSystem& real_files();

// Whether an error tells of a disk, or of a person's share of one, that is full: it may have room again later.
bool tells_of_a_full_disk(std::string_view error);

std::string read_text(const std::filesystem::path& path);
// Beside, synced, renamed: a reader sees the old text or the new one.
void write_text_atomically(FileSystem& files, const std::filesystem::path& path, std::string_view text);

// A whole file mapped read-only; pages are shared between processes.
class MappedFile {
 public:
  explicit MappedFile(const std::filesystem::path& path);
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&&) = delete;
  std::span<const std::byte> bytes() const { return {static_cast<const std::byte*>(data_), size_}; }
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
  void* data_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace lockstep::base
