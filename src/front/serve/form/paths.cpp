// One folder is read, as far as a list is of use.
#include "front/serve/form/paths.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "base/utf8.h"

namespace lockstep::serve {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

namespace {

constexpr std::size_t most_paths = 100, most_entries = 20'000;

}  // namespace

Json paths_from(const Folders& folders, const std::string& typed) {
  Json list = Json::array();
  std::error_code error;
  if (typed.empty()) {
    for (const fs::path& folder : folders.allowed()) list.push_back({{"path", folder.string() + "/"}, {"folder", true}, {"model", false}});
    return list;
  }
  const std::string begun = typed.substr(typed.rfind('/') + 1);
  const std::string before = typed.substr(0, typed.size() - begun.size());  // as it was typed, with its slash
  const fs::path folder = before.empty() ? "." : before;
  if (typed.find('\0') != std::string::npos || !folders.allows(folder)) return list;
  std::set<std::pair<bool, std::string>> found;  // files behind folders
  std::size_t entries = 0;
  for (auto entry = fs::directory_iterator(folder, error); !error && entry != fs::end(entry) && ++entries <= most_entries;
       entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    std::error_code here;
    if (!name.starts_with(begun) || name.starts_with('.') || base::first_invalid_utf8(name)) continue;
    found.emplace(!entry->is_directory(here), name);
  }
  for (const auto& [is_file, name] : found) {
    if (list.size() == most_paths) break;
    const fs::path path = folder / name;
    if (!folders.allows(path)) continue;  // a link that leads out
    list.push_back({{"path", before + name + (is_file ? "" : "/")},
                    {"folder", !is_file},
                    {"model", !is_file && fs::exists(path / "config.json", error)}});
  }
  return list;
}

}  // namespace lockstep::serve
