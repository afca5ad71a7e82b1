// flock(2), with a second look at the name: whoever removes a locked file has removed it from under those who wait to lock it.
#include "base/file/file_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

namespace lockstep::base {

bool make_private_folder(const std::filesystem::path& path) {
  if (::mkdir(path.c_str(), 0700) == 0) return true;
  struct stat status = {};
  if (errno != EEXIST || ::lstat(path.c_str(), &status) != 0) return false;
  if (!S_ISDIR(status.st_mode) || status.st_uid != ::geteuid()) return false;
  return (status.st_mode & 077) == 0 || ::chmod(path.c_str(), 0700) == 0;
}

std::optional<FileLock> FileLock::take(const std::filesystem::path& path, Refusal* why) {
  Refusal unasked;
  Refusal& refusal = why != nullptr ? *why : unasked;
  for (;;) {
    FileLock lock(Descriptor(::open(path.c_str(), O_RDONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600)));
    const int file = lock.file_.number();
    refusal = Refusal::impossible;
    if (file < 0) return std::nullopt;
    if (::flock(file, LOCK_EX | LOCK_NB) != 0) {
      if (errno == EWOULDBLOCK) refusal = Refusal::held;
      return std::nullopt;
    }
    struct stat mine = {};
    struct stat there = {};
    if (::fstat(file, &mine) != 0) return std::nullopt;
    if (::lstat(path.c_str(), &there) == 0 && mine.st_ino == there.st_ino && mine.st_dev == there.st_dev) {
      refusal = Refusal::none;
      return lock;
    }
  }
}

}  // namespace lockstep::base
