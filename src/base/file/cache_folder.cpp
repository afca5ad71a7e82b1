// Asks the environment, in the order that people expect.
#include "base/file/cache_folder.h"

#include <cstdlib>

namespace lockstep::base {

std::filesystem::path cache_folder() {
  const auto set = [](const char* variable) -> std::filesystem::path {
    const char* value = std::getenv(variable);
    return value ? value : "";
  };
  if (auto folder = set("LOCKSTEP_CACHE"); !folder.empty()) return folder;
  if (const auto folder = set("XDG_CACHE_HOME"); !folder.empty()) return folder / "lockstep";
  if (const auto folder = set("HOME"); !folder.empty()) return folder / ".cache" / "lockstep";
  return {};
}

}  // namespace lockstep::base
