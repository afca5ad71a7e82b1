// A list in a file.
#include "front/serve/runs/queue.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.h"
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

// Without those that have begun.
Json Queue::read() const {
  const std::filesystem::path path = folders_.own() / "queue.json";
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error)) return Json::array();
  const Json list = base::json_if_any(base::read_text(path)).value_or(Json::array());
  Json waiting = Json::array();
  for (const Json& one : list) {
    if (one.is_object() && !begun_.contains(one.value("name", ""))) waiting.push_back(one);
  }
  return waiting;
}

void Queue::write(const Json& waiting) {
  base::real_files().create_directories(folders_.own());
  base::write_text_atomically(base::real_files(), folders_.own() / "queue.json", waiting.dump(1) + "\n");
  begun_.clear();
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

std::string Queue::trouble() const {
  base::Lock lock(mutex_);
  return trouble_;
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
  std::string trouble;
  try {
    starts_.start(name, next.value("arguments", std::vector<std::string>()));
    begin(name);
  } catch (const base::UserError& error) {
    trouble = error.what();
    if (trouble.starts_with('[')) trouble.erase(0, trouble.find(' ') + 1);  // "[ui] text"
  }
  base::Lock lock(mutex_);
  trouble_ = std::move(trouble);
}

// Only when it has started: at every moment it waits or has begun.
void Queue::begin(const std::string& name) {
  try {
    remove(name);
  } catch (const base::UserError&) {
    base::Lock lock(mutex_);
    begun_.insert(name);  // until there is room to write that down
  }
}

}  // namespace lockstep::serve
