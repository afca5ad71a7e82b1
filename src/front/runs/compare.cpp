// Settings are compared as their files write them, so runs of other versions compare too.
#include "front/runs/compare.h"

#include <algorithm>
#include <map>

#include "config/file.h"
#include "journal/run_folder.h"

namespace lockstep::runs {

std::vector<Difference> differing_settings(const std::vector<std::filesystem::path>& folders) {
  std::vector<std::string> keys;
  std::vector<std::map<std::string, std::string>> of_runs;
  for (const auto& folder : folders) {
    auto& values = of_runs.emplace_back();
    for (const config::FileEntry& entry : config::read_config_file(journal::RunFolder{folder}.config()).entries) {
      values[entry.key] = entry.written.text;
      if (std::find(keys.begin(), keys.end(), entry.key) == keys.end()) keys.push_back(entry.key);
    }
  }
  std::vector<Difference> found;
  for (const std::string& key : keys) {
    Difference difference{.key = key, .values = {}};
    for (const auto& values : of_runs) {
      const auto value = values.find(key);
      difference.values.push_back(value == values.end() ? std::nullopt : std::optional(value->second));
    }
    const bool same = std::all_of(difference.values.begin(), difference.values.end(),
                                  [&](const auto& value) { return value == difference.values.front(); });
    if (!same && key != "name") found.push_back(std::move(difference));
  }
  return found;
}

}  // namespace lockstep::runs
