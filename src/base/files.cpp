// POSIX files behind the seam, with errors that name the path.
#include "base/files.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <sstream>

#include "base/error.h"

namespace lockstep::base {
namespace {

UserError file_error(std::string_view doing, const std::filesystem::path& path, int error) {
  const char* hint = "";
  if (error == ENOSPC) hint = " Free some space, lower trainer.max_checkpoints, or point --output at another disk.";
  if (error == EROFS || error == EACCES) hint = " Choose a folder you may write to with --output.";
  return checkpoint_error("files", "cannot {} {}: {}.{}", doing, path.string(), std::strerror(error), hint);
}

class PosixWriter : public FileWriter {
 public:
  explicit PosixWriter(std::filesystem::path path) : path_(std::move(path)) {
    descriptor_ = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (descriptor_ < 0) throw file_error("create", path_, errno);
  }
  ~PosixWriter() override {
    if (descriptor_ >= 0) ::close(descriptor_);
  }
  void write(std::span<const std::byte> bytes) override {
    while (!bytes.empty()) {
      const ssize_t written = ::write(descriptor_, bytes.data(), std::min<std::size_t>(bytes.size(), 64u << 20));
      if (written < 0 && errno == EINTR) continue;
      if (written < 0) throw file_error("write", path_, errno);
      bytes = bytes.subspan(static_cast<std::size_t>(written));
    }
  }
  void sync_and_close() override {
    if (::fsync(descriptor_) != 0) throw file_error("sync", path_, errno);
    if (::close(std::exchange(descriptor_, -1)) != 0) throw file_error("close", path_, errno);
  }

 private:
  std::filesystem::path path_;
  int descriptor_ = -1;
};

class PosixFiles : public FileSystem {
 public:
  std::unique_ptr<FileWriter> create(const std::filesystem::path& path) override { return std::make_unique<PosixWriter>(path); }
  void rename(const std::filesystem::path& from, const std::filesystem::path& to) override {
    if (::rename(from.c_str(), to.c_str()) != 0) throw file_error("rename to", to, errno);
  }
  void sync_directory(const std::filesystem::path& path) override {
    const int descriptor = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (descriptor < 0) throw file_error("open", path, errno);
    const bool synced = ::fsync(descriptor) == 0 || errno == EINVAL;
    const int error = errno;
    ::close(descriptor);
    if (!synced) throw file_error("sync", path, error);
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
};

}  // namespace

FileSystem& real_files() {
  static PosixFiles files;
  return files;
}

std::string read_text(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw file_error("read", path, errno ? errno : ENOENT);
  std::ostringstream text;
  text << file.rdbuf();
  return std::move(text).str();
}

void write_text_atomically(FileSystem& files, const std::filesystem::path& path, std::string_view text) {
  const std::filesystem::path beside = path.string() + ".tmp";
  auto file = files.create(beside);
  file->write(std::as_bytes(std::span(text.data(), text.size())));
  file->sync_and_close();
  files.rename(beside, path);
}

MappedFile::MappedFile(const std::filesystem::path& path) : path_(path) {
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) throw file_error("open", path, errno);
  struct stat status{};
  if (::fstat(descriptor, &status) != 0 || !S_ISREG(status.st_mode)) {
    ::close(descriptor);
    throw file_error("map", path, S_ISDIR(status.st_mode) ? EISDIR : EINVAL);
  }
  size_ = static_cast<std::size_t>(status.st_size);
  if (size_ > 0) {
    data_ = ::mmap(nullptr, size_, PROT_READ, MAP_SHARED, descriptor, 0);
    const int error = errno;
    ::close(descriptor);
    if (data_ == MAP_FAILED) throw file_error("map", path, error);
  } else {
    ::close(descriptor);
  }
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(data_, size_);
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : path_(std::move(other.path_)), data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

}  // namespace lockstep::base
