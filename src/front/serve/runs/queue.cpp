// A list in a file.
#include "front/serve/runs/queue.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/files.h"
#include "base/json.h"
#include "front/launch/devices/devices.h"

namespace lockstep::serve {
namespace {

using Json = nlohmann::ordered_json;

// A GPU that another program fills is not free; a desktop's few windows do not count.
bool gpus_are_free() {
  const launch::Machine machine = launch::look_at_machine(launch::process_environment());
  return std::all_of(machine.visible.begin(), machine.visible.end(),
                     [](const launch::VisibleGpu& one) { return one.gpu.free_bytes * 10 >= one.gpu.memory_bytes * 9; });
}

}  // namespace

Json Queue::read() const {
  const std::filesystem::path path = folders_.own() / "queue.json";
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error)) return Json::array();
  const Json list = base::json_if_any(base::read_text(path)).value_or(Json::array());
  return list.is_array() ? list : Json::array();
}

void Queue::write(const Json& waiting) const {
  base::write_text_atomically(base::real_files(), folders_.own() / "queue.json", waiting.dump(1) + "\n");
}

void Queue::add(const std::string& name, const std::vector<std::string>& arguments) {
  base::Lock lock(mutex_);
  Json waiting = read();
  waiting.push_back({{"name", name}, {"arguments", arguments}});
  write(waiting);
}

bool Queue::remove(const std::string& name) {
  base::Lock lock(mutex_);
  const Json waiting = read();
  Json others = Json::array();
  for (const Json& one : waiting) {
    if (one.value("name", "") != name) others.push_back(one);
  }
  if (others.size() == waiting.size()) return false;
  write(others);
  return true;
}

std::vector<std::string> Queue::names() const {
  base::Lock lock(mutex_);
  std::vector<std::string> names;
  for (const Json& one : read()) names.push_back(one.value("name", ""));
  return names;
}

void Queue::advance(bool others_train) {
  if (others_train || names().empty() || !gpus_are_free()) return;
  Json next;
  {
    base::Lock lock(mutex_);
    const Json waiting = read();
    if (waiting.empty()) return;
    next = waiting.front();
  }
  const std::string name = next.value("name", "");
  starts_.start(name, next.value("arguments", std::vector<std::string>()));
  remove(name);  // only now: at every moment it waits or has started
}

}  // namespace lockstep::serve
