// Locks on files that the kernel gives up with the process that holds them, in whatever container it runs; and folders of one user alone.
#pragma once

#include <filesystem>
#include <optional>
#include <utility>

namespace lockstep::base {

// Made if it is not there, mode 0700. False if it cannot be, is a link, or belongs to another user.
bool make_private_folder(const std::filesystem::path& path);

// Held until it goes. Links are not followed.
class FileLock {
 public:
  enum class Refusal { none, held, impossible };
  // Makes the file if need be. `why`: whether somebody holds it, or it cannot be opened.
  static std::optional<FileLock> take(const std::filesystem::path& path, Refusal* why = nullptr);

  FileLock(FileLock&& other) noexcept : file_(std::exchange(other.file_, -1)) {}
  FileLock& operator=(FileLock&& other) noexcept {
    std::swap(file_, other.file_);
    return *this;
  }
  ~FileLock();

 private:
  explicit FileLock(int file) : file_(file) {}
  int file_;
};

}  // namespace lockstep::base
