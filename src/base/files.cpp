// POSIX files behind the seam, with errors that name the path.
#include "base/files.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "base/file/descriptor.h"
#include "base/file/refusal.h"

namespace lockstep::base {
namespace {

UserError file_error(std::string_view doing, const std::filesystem::path& path, int error) {
  const char* hint = "";
  if (error == ENOSPC) hint = " Free some space, lower trainer.max_checkpoints, or point --output at another disk.";
  if (error == EROFS || error == EACCES || error == ENOTDIR) hint = " Choose a folder you may write to with --output.";
  return checkpoint_error("files", "cannot {} {}: {}.{}", doing, path.string(), why_refused(path, error, Access::write), hint);
}

UserError read_error(std::string_view doing, const std::filesystem::path& path, int error) {
  return checkpoint_error("files", "cannot {} {}: {}.", doing, path.string(), why_refused(path, error, Access::read));
}

// Large aligned pieces go to the disk past the page cache where the file system allows it: on a busy machine that is several times
// faster than filling the cache and syncing it (measured on ext4: 1.6 against 0.25 GB/s), and it leaves the cache to the training data.
class PosixWriter : public FileWriter {
 public:
  PosixWriter(std::filesystem::path path, int flags)
      : path_(std::move(path)), file_(::open(path_.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | flags, 0644)) {
    if (!file_.open()) throw file_error("create", path_, errno);
  }
  // The same from every process that shares the file, so whoever comes later changes nothing.
  void set_size(std::uint64_t size) {
    struct stat status {};
    if (::fstat(file_.number(), &status) == 0 && static_cast<std::uint64_t>(status.st_size) == size) return;
    if (::ftruncate(file_.number(), static_cast<off_t>(size)) != 0) throw file_error("set the size of", path_, errno);
  }
  void write_at(std::uint64_t offset, std::span<const std::byte> bytes) override {
    while (!bytes.empty()) {
      const bool direct = set_direct(directly_writable(offset, bytes));
      const std::size_t size = std::min<std::size_t>(direct ? whole_pages(bytes.size()) : before_direct(offset, bytes), 64u << 20);
      const ssize_t written = ::pwrite(file_.number(), bytes.data(), size, static_cast<off_t>(offset));
      if (written < 0 && errno == EINTR) continue;
      if (written < 0 && errno == EINVAL && direct) {  // stricter than we thought: the page cache takes anything
        direct_refused_ = true;
        continue;
      }
      if (written < 0) throw file_error("write", path_, errno);
      offset += static_cast<std::size_t>(written);
      bytes = bytes.subspan(static_cast<std::size_t>(written));
    }
  }
  void sync_and_close() override {
    if (::fsync(file_.number()) != 0) throw file_error("sync", path_, errno);
    if (::close(file_.release()) != 0) throw file_error("close", path_, errno);
  }

 private:
  static constexpr std::size_t direct_alignment = 4096, least_direct = 1u << 20;

  static std::size_t whole_pages(std::size_t bytes) { return bytes / direct_alignment * direct_alignment; }
  bool directly_writable(std::uint64_t offset, std::span<const std::byte> bytes) const {
    const auto address = reinterpret_cast<std::uintptr_t>(bytes.data());
    return !direct_refused_ && bytes.size() >= least_direct && address % direct_alignment == 0 && offset % direct_alignment == 0;
  }
  // What goes through the page cache: all of it, or what stands before the first page that can go past it.
  std::size_t before_direct(std::uint64_t offset, std::span<const std::byte> bytes) const {
    const std::size_t edge = (direct_alignment - offset % direct_alignment) % direct_alignment;
    return edge < bytes.size() && directly_writable(offset + edge, bytes.subspan(edge)) ? edge : bytes.size();
  }
  // Switches the descriptor; returns what it is now.
  bool set_direct(bool wanted) {
    if (wanted == direct_) return direct_;
    const int flags = ::fcntl(file_.number(), F_GETFL);
    if (flags >= 0 && ::fcntl(file_.number(), F_SETFL, wanted ? flags | O_DIRECT : flags & ~O_DIRECT) == 0) {
      direct_ = wanted;
    } else {
      direct_refused_ = true;
    }
    return direct_;
  }

  std::filesystem::path path_;
  Descriptor file_;
  bool direct_ = false;
  bool direct_refused_ = false;
};

class PosixAppender : public FileAppender {
 public:
  explicit PosixAppender(Descriptor owned) : owned_(std::move(owned)), descriptor_(owned_.number()) {}
  explicit PosixAppender(int others) : descriptor_(others) {}
  Result append(std::string_view bytes) override {
    Result result;
    while (result.written < bytes.size()) {
      const ssize_t written = ::write(descriptor_, bytes.data() + result.written, bytes.size() - result.written);
      if (written < 0 && errno == EINTR) continue;
      if (written < 0) {
        result.error = std::strerror(errno);
        break;
      }
      result.written += static_cast<std::size_t>(written);
    }
    return result;
  }

 private:
  Descriptor owned_;
  int descriptor_;
};

class PosixFiles : public FileSystem {
 public:
  std::unique_ptr<FileAppender> open_to_append(const std::filesystem::path& path) override {
    Descriptor file(::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644));
    if (!file.open()) throw file_error("open to append", path, errno);
    return std::make_unique<PosixAppender>(std::move(file));
  }
  std::unique_ptr<FileWriter> create(const std::filesystem::path& path) override { return std::make_unique<PosixWriter>(path, O_TRUNC); }
  std::unique_ptr<FileWriter> open_to_share(const std::filesystem::path& path, std::uint64_t size) override {
    auto writer = std::make_unique<PosixWriter>(path, 0);
    writer->set_size(size);
    return writer;
  }
  void rename(const std::filesystem::path& from, const std::filesystem::path& to) override {
    if (::rename(from.c_str(), to.c_str()) != 0) throw file_error("rename to", to, errno);
  }
  void sync_directory(const std::filesystem::path& path) override {
    const Descriptor folder(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (!folder.open()) throw file_error("open", path, errno);
    if (::fsync(folder.number()) != 0 && errno != EINVAL) throw file_error("sync", path, errno);
  }
  void create_directories(const std::filesystem::path& path) override {
    std::error_code error;
    std::filesystem::create_directories(path, error);
    if (error) throw file_error("create the folder", path, error.value());
  }
  void remove_all(const std::filesystem::path& path) override {
    std::error_code error;
    std::filesystem::remove_all(path, error);
    if (error) throw file_error("remove", path, error.value());
  }
  std::optional<std::uint64_t> size(const std::filesystem::path& path) override {
    const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    struct stat status {};
    return file.open() && ::fstat(file.number(), &status) == 0 ? std::optional(static_cast<std::uint64_t>(status.st_size)) : std::nullopt;
  }
  std::size_t read_at(const std::filesystem::path& path, std::uint64_t offset, std::span<std::byte> bytes) override {
    const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    std::size_t seen = 0;
    while (file.open() && seen < bytes.size()) {
      const ssize_t got = ::pread(file.number(), bytes.data() + seen, bytes.size() - seen, static_cast<off_t>(offset + seen));
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) throw read_error("read", path, errno);
      if (got == 0) break;
      seen += static_cast<std::size_t>(got);
    }
    return seen;
  }
};

}  // namespace

FileSystem& real_files() {
  static PosixFiles files;
  return files;
}

std::unique_ptr<FileAppender> append_to(int descriptor) { return std::make_unique<PosixAppender>(descriptor); }

bool tells_of_a_full_disk(std::string_view error) {
  return error.find(std::strerror(ENOSPC)) != std::string_view::npos || error.find(std::strerror(EDQUOT)) != std::string_view::npos;
}

std::string read_text(const std::filesystem::path& path) {
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file.open()) throw read_error("read", path, errno);
  std::string text;
  char piece[64u << 10];
  for (;;) {
    const ssize_t got = ::read(file.number(), piece, sizeof piece);  // of a folder too: EISDIR
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) throw read_error("read", path, errno);
    if (got == 0) return text;
    text.append(piece, static_cast<std::size_t>(got));
  }
}

void write_text_atomically(FileSystem& files, const std::filesystem::path& path, std::string_view text) {
  const std::filesystem::path beside = path.string() + ".tmp";
  try {
    auto file = files.create(beside);
    file->write(std::as_bytes(std::span(text.data(), text.size())));
    file->sync_and_close();
    files.rename(beside, path);
  } catch (...) {
    std::error_code ignored;
    std::filesystem::remove(beside, ignored);  // on a full disk that is room for others
    throw;
  }
}

MappedFile::MappedFile(const std::filesystem::path& path) : path_(path) {
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file.open()) throw read_error("open", path, errno);
  struct stat status {};
  if (::fstat(file.number(), &status) != 0 || !S_ISREG(status.st_mode))
    throw read_error("map", path, S_ISDIR(status.st_mode) ? EISDIR : EINVAL);
  size_ = static_cast<std::size_t>(status.st_size);
  if (size_ == 0) return;
  data_ = ::mmap(nullptr, size_, PROT_READ, MAP_SHARED, file.number(), 0);
  if (data_ == MAP_FAILED) throw read_error("map", path, errno);
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(data_, size_);
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : path_(std::move(other.path_)), data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

}  // namespace lockstep::base
