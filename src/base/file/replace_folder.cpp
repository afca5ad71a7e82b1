// The old folder steps aside, the new one takes its name; where that fails the old one takes it back.
#include "base/file/replace_folder.h"

namespace lockstep::base {

namespace fs = std::filesystem;

bool replace_folder(FileSystem& files, const fs::path& partial, const fs::path& whole, const fs::path& replaced) {
  const bool replaces = fs::exists(whole);
  if (replaces) files.rename(whole, replaced);
  try {
    files.rename(partial, whole);
    const fs::path parent = whole.parent_path();
    files.sync_directory(parent.empty() ? "." : parent);
  } catch (...) {
    if (replaces && !fs::exists(whole)) files.rename(replaced, whole);
    throw;
  }
  return replaces;
}

}  // namespace lockstep::base
