// Follows one file a machine.
#include "front/serve/runs/machines.h"

#include <algorithm>
#include <vector>

#include "base/json.h"

namespace lockstep::serve {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

void Machines::read_on(File& file) {
  const journal::Tail::Update update = file.tail->poll();
  if (update.replaced) file.machine = file.last = file.straggler = nullptr;
  std::string last;  // of the readings only the last counts
  for (const std::string& line : update.lines) {
    if (!line.starts_with("{\"event\":")) {
      last = line;
      continue;
    }
    Json json = base::json_if_any(line).value_or(nullptr);
    const auto event = json.is_object() ? json.find("event") : json.end();
    if (event == json.end()) continue;
    if (*event == "machine") {  // another start: what was before is over
      file.machine = std::move(json);
      file.last = file.straggler = nullptr;
      last.clear();
    } else if (*event == "straggler") {
      file.straggler = std::move(json);
    }
  }
  if (last.empty()) return;
  if (auto json = base::json_if_any(last); json && json->is_object()) file.last = std::move(*json);
}

Json Machines::of(const fs::path& monitor) {
  std::vector<fs::path> paths;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(monitor, error)) {
    if (entry.path().extension() == ".jsonl") paths.push_back(entry.path());
  }
  std::sort(paths.begin(), paths.end());
  Json list = Json::array();
  base::Lock lock(mutex_);
  for (const fs::path& path : paths) {
    File& file = files_[path.string()];
    if (!file.tail) file.tail = std::make_unique<journal::Tail>(path);
    file.used = ++uses_;
    read_on(file);
    list.push_back({{"machine", file.machine}, {"last", file.last}, {"straggler", file.straggler}});
  }
  while (files_.size() > kept)
    files_.erase(
        std::min_element(files_.begin(), files_.end(), [](const auto& a, const auto& b) { return a.second.used < b.second.used; }));
  return list;
}

}  // namespace lockstep::serve
