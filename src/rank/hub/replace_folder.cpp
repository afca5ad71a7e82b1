// The old folder steps aside, the new one takes its name, the old one goes.
#include "rank/hub/replace_folder.h"

namespace lockstep::hub {

namespace fs = std::filesystem;

void replace_folder(base::FileSystem& files, const fs::path& partial, const fs::path& folder) {
  const fs::path replaced = folder.string() + ".replaced";
  std::error_code error;
  const bool was_there = fs::exists(folder, error);
  files.remove_all(replaced);
  if (was_there) files.rename(folder, replaced);
  try {
    files.rename(partial, folder);
  } catch (...) {
    if (was_there) files.rename(replaced, folder);
    throw;
  }
  if (was_there) files.remove_all(replaced);
  const fs::path parent = folder.parent_path();
  files.sync_directory(parent.empty() ? "." : parent);
}

}  // namespace lockstep::hub
