// mkdtemp, and remove_all at the end.
#include "base/file/temporary_folder.h"

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "base/error.h"
#include "base/files.h"

namespace lockstep::base {
namespace fs = std::filesystem;

TemporaryFolder::TemporaryFolder(fs::path path) : path_(std::move(path)) { real_files().create_directories(path_); }

TemporaryFolder TemporaryFolder::fresh(std::string_view name) {
  std::error_code error;
  const fs::path parent = fs::temp_directory_path(error);
  std::string path = (parent / name).string() + "-XXXXXX";
  if (error || ::mkdtemp(path.data()) == nullptr)
    throw machine_error("files", "cannot make a folder for temporary files in {}: {}. Point TMPDIR at one that can be written to.",
                        parent.empty() ? "TMPDIR" : parent.string(), error ? error.message() : std::strerror(errno));
  return TemporaryFolder(path);
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code error;
  fs::remove_all(path_, error);
}

}  // namespace lockstep::base
