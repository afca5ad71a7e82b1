// A folder that passes away with its owner.
#pragma once

#include <filesystem>
#include <string_view>

namespace lockstep::base {

class TemporaryFolder {
 public:
  // Made where it says, beside what will be made of it; its parents too.
  explicit TemporaryFolder(std::filesystem::path path);
  // A fresh one where temporary files go (TMPDIR), that only this user may enter: "lockstep-check" gives /tmp/lockstep-check-X3kd9Q.
  static TemporaryFolder fresh(std::string_view name);
  ~TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

}  // namespace lockstep::base
