// The name of a file or folder as a person would say it.
#pragma once

#include <filesystem>
#include <string>

namespace lockstep::base {

// The last name of a path, also where it ends in a slash or a dot, as shells complete folders. Empty for an empty path and for the root.
inline std::string last_name(const std::filesystem::path& path) {
  if (path.empty()) return {};
  const std::filesystem::path whole = std::filesystem::absolute(path).lexically_normal();
  return (whole.has_filename() ? whole : whole.parent_path()).filename().string();
}

}  // namespace lockstep::base
