// Looks at the parts of the path again, from the root on: the first that is in the way is named.
#include "base/file/refusal.h"

#include <fcntl.h>
#include <pwd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace lockstep::base {
namespace {

namespace fs = std::filesystem;

bool may(const fs::path& path, int what) { return ::faccessat(AT_FDCWD, path.c_str(), what, AT_EACCESS) == 0; }

std::string user_name() {
  const passwd* user = ::getpwuid(::geteuid());
  return user != nullptr ? fmt::format("user {}", user->pw_name) : fmt::format("user id {}", ::geteuid());
}

// The first part that is there and is no folder; empty where the system meant something else, or it has gone since.
fs::path file_in_the_way(const fs::path& path) {
  fs::path part;
  for (const fs::path& name : path) {
    part /= name;
    std::error_code error;
    const fs::file_status status = fs::status(part, error);
    if (fs::exists(status) && !fs::is_directory(status)) return part;
  }
  return {};
}

std::string what_is_forbidden(const fs::path& path, Access access) {
  fs::path folder;
  for (const fs::path& name : path.parent_path()) {
    folder /= name;
    if (!may(folder, X_OK) && errno == EACCES) return fmt::format("may not enter {}", folder.string());
  }
  if (access == Access::any) return "may not use it";
  if (access == Access::read) return "may not read it";
  // What is not there yet is written to its folder.
  while (!folder.empty() && !may(folder, F_OK)) folder = folder.parent_path();
  return fmt::format("may not write to {}", may(path, F_OK) ? "it" : folder.empty() ? "this folder" : folder.string());
}

}  // namespace

std::string why_refused(const fs::path& path, int error, Access access) {
  std::string words = std::strerror(error);
  if (error == EACCES) words += fmt::format(": {} {}", user_name(), what_is_forbidden(path, access));
  if (error == EISDIR) words += ": it is a folder, and a file is needed there";
  if (error == ENOTDIR) {
    if (const fs::path file = file_in_the_way(path); !file.empty())
      words += fmt::format(": {} is a file, and a folder is needed there", file.string());
  }
  return words;
}

void refuse_if_hidden(const fs::path& path) {
  struct stat status = {};
  const bool seen = ::stat(path.c_str(), &status) == 0;
  const int error = seen && S_ISDIR(status.st_mode) && !may(path, R_OK | X_OK) ? EACCES : seen ? 0 : errno;
  if (error == EACCES)
    throw usage_error("files", "cannot look at {}: {}. Ask its owner, or name another.", path.string(),
                      why_refused(path, error, Access::read));
}

void expect_writable_folder(const fs::path& folder) {
  struct stat status = {};
  const bool seen = ::stat(folder.c_str(), &status) == 0;
  if (!seen && errno == ENOENT) return;
  const int error = !seen ? errno : !S_ISDIR(status.st_mode) ? ENOTDIR : may(folder, W_OK | X_OK) ? 0 : errno;
  if (error != 0) throw checkpoint_error("files", "cannot write to {}: {}.", folder.string(), why_refused(folder, error, Access::write));
}

UserError refusal(const fs::filesystem_error& error) {
  const fs::path& path = error.path1();
  return checkpoint_error("files", "cannot use {}: {}.", path.empty() ? "a path" : path.string(),
                          why_refused(path, error.code().value(), Access::any));
}

}  // namespace lockstep::base
