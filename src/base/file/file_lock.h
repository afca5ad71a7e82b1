// Locks on files that the kernel gives up with the process that holds them, in whatever container it runs; and folders of one user alone.
#pragma once

#include <filesystem>
#include <optional>
#include <utility>

#include "base/file/descriptor.h"

namespace lockstep::base {

// Made if it is not there, mode 0700. False if it cannot be, is a link, or belongs to another user.
bool make_private_folder(const std::filesystem::path& path);

// Held until it goes. Links are not followed.
class FileLock {
 public:
  enum class Refusal { none, held, impossible };
  // Makes the file if need be. `why`: whether somebody holds it, or it cannot be opened.
  static std::optional<FileLock> take(const std::filesystem::path& path, Refusal* why = nullptr);

 private:
  explicit FileLock(Descriptor file) : file_(std::move(file)) {}
  Descriptor file_;
};

}  // namespace lockstep::base
