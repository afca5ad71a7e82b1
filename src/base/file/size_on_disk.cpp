// Every file is looked at, none is opened.
#include "base/file/size_on_disk.h"

#include <sys/stat.h>

#include <set>
#include <utility>

namespace lockstep::base {

namespace fs = std::filesystem;

std::uint64_t size_on_disk(const fs::path& folder) {
  std::uint64_t bytes = 0;
  std::set<std::pair<dev_t, ino_t>> seen;
  std::error_code error;
  for (auto entry = fs::recursive_directory_iterator(folder, fs::directory_options::skip_permission_denied, error);
       !error && entry != fs::recursive_directory_iterator(); entry.increment(error)) {
    struct stat status {};
    if (::lstat(entry->path().c_str(), &status) != 0 || !S_ISREG(status.st_mode)) continue;
    if (status.st_nlink == 1 || seen.emplace(status.st_dev, status.st_ino).second)
      bytes += static_cast<std::uint64_t>(status.st_blocks) * 512;
  }
  return bytes;
}

}  // namespace lockstep::base
