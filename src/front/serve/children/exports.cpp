// One thread, one command at a time: each may fill the memory of the machine.
#include "front/serve/children/exports.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/files.h"
#include "base/json.h"
#include "base/quiet_thread.h"
#include "base/text.h"
#include "config/config.h"
#include "front/job/naming.h"
#include "front/serve/children/process.h"
#include "journal/run_folder.h"

namespace lockstep::serve {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr double look_every_s = 0.5;

bool is_there(const fs::path& path) {
  std::error_code error;
  return fs::exists(path, error);
}

std::string command_text(const std::vector<std::vector<std::string>>& commands) {
  std::string text;
  for (const auto& words : commands) text += (text.empty() ? "lockstep " : " && lockstep ") + base::shell_line(words);
  return text;
}

}  // namespace

Exports::Exports(const Folders& folders) : folders_(folders) {
  thread_ = base::quiet_thread([this] { work(); });
}

Exports::~Exports() {
  {
    base::Lock lock(mutex_);
    closing_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

fs::path Exports::begin(const std::string& run, const fs::path& checkpoint, bool merge) {
  const journal::RunFolder folder{folders_.run(run)};
  const config::RunConfig config = config::load_resolved(folder.config());
  const bool adapters = config.lora.enabled;
  if (merge && !adapters) throw base::usage_error("ui", "{} trained the whole model: there is no adapter to merge. Export it.", run);
  if (merge && !folders_.allows(config.model.path))
    throw base::usage_error("ui", "{} lies outside the folders that this page may use. Start it with --folder {} to allow it.",
                            config.model.path, config.model.path);
  const std::string step = checkpoint.filename().string();
  const fs::path made = folder.root / "exports", adapter = made / (step + "-adapter");
  Task task{.run = run, .name = !adapters ? step : step + (merge ? "-merged" : "-adapter")};
  task.folder = made / task.name;
  if (!merge || !is_there(adapter))
    task.commands.push_back({"export", "--run", folder.root.string(), "--checkpoint", checkpoint.string(), "--output",
                             (adapters ? adapter : task.folder).string()});
  if (merge)
    task.commands.push_back({"merge", "--model", config.model.path, "--adapter", adapter.string(), "--output", task.folder.string()});
  if (is_there(task.folder))
    throw base::usage_error("ui", "{} is there already. Use it, or remove it to have it made anew.", task.folder.string());
  base::real_files().create_directories(made);
  base::Lock lock(mutex_);
  std::size_t waiting = 0;
  for (const Task& one : tasks_) {
    waiting += one.state == "failed" ? 0 : 1;
    if (one.folder == task.folder && one.state != "failed")
      throw base::usage_error("ui", "{} is being made already.", task.folder.string());
  }
  if (waiting >= most_waiting) throw base::usage_error("ui", "{} exports wait already. Let some of them end first.", waiting);
  std::erase_if(tasks_, [&](const Task& one) { return one.folder == task.folder; });  // it failed before
  tasks_.push_back(task);
  changed_.notify_all();
  return task.folder;
}

Json Exports::of(const std::string& run) const {
  Json list = Json::array();
  std::error_code error;
  std::vector<fs::path> made;
  for (const auto& entry : fs::directory_iterator(folders_.output() / run / "exports", error)) {
    const std::string name = entry.path().filename().string();
    if (entry.is_directory(error) && !name.ends_with(".partial")) made.push_back(entry.path());
  }
  std::sort(made.begin(), made.end());
  base::Lock lock(mutex_);
  for (const fs::path& folder : made) {
    const bool at_work = std::any_of(tasks_.begin(), tasks_.end(), [&](const Task& one) { return one.folder == folder; });
    if (!at_work) list.push_back({{"name", folder.filename().string()}, {"path", folder.string()}, {"state", "done"}});
  }
  for (const Task& one : tasks_) {
    if (one.run != run) continue;
    list.push_back({{"name", one.name},
                    {"path", one.folder.string()},
                    {"state", one.state},
                    {"done", one.done},
                    {"total", one.total},
                    {"text", one.text},
                    {"command", command_text(one.commands)}});
  }
  return list;
}

bool Exports::works_for(const std::string& run) const {
  base::Lock lock(mutex_);
  return std::any_of(tasks_.begin(), tasks_.end(), [&](const Task& one) { return one.run == run && one.state != "failed"; });
}

bool Exports::is_closing() const {
  base::Lock lock(mutex_);
  return closing_;
}

void Exports::update(const Task& task, std::uint64_t done, std::uint64_t total) {
  base::Lock lock(mutex_);
  for (Task& one : tasks_) {
    if (one.folder == task.folder) one.done = done, one.total = total;
  }
}

void Exports::work() {
  const auto waits = [](const Task& one) { return one.state == "waiting"; };
  for (;;) {
    Task task;
    {
      base::Lock lock(mutex_);
      changed_.wait(lock, [&]() LOCKSTEP_REQUIRES(mutex_) { return closing_ || std::any_of(tasks_.begin(), tasks_.end(), waits); });
      if (closing_) return;
      const auto next = std::find_if(tasks_.begin(), tasks_.end(), waits);
      next->state = "working";
      task = *next;
    }
    std::string said;
    bool failed = false;
    try {
      run_commands(task, said);
    } catch (const std::exception& error) {
      said = error.what();
      failed = true;
    }
    std::error_code ignored;
    if (failed) fs::remove_all(task.folder.string() + ".partial", ignored);  // of a command that was killed
    base::Lock lock(mutex_);
    const auto here = std::find_if(tasks_.begin(), tasks_.end(), [&](const Task& one) { return one.folder == task.folder; });
    if (failed) {
      here->state = "failed";
      here->text = said;
    } else {
      tasks_.erase(here);  // the folder tells
    }
  }
}

void Exports::run_commands(const Task& task, std::string& said) {
  for (const std::vector<std::string>& words : task.commands) {
    Process process(words, {"LOCKSTEP_PROGRESS=json"});
    process.close_input();
    while (!process.ended()) {
      if (is_closing()) throw base::run_error("ui", "the page's program ended before this was done.");
      const auto line = process.read_line(look_every_s);
      const auto json = line ? base::json_if_any(*line) : std::nullopt;
      if (json && json->is_object()) update(task, json->value("done", std::uint64_t{0}), json->value("total", std::uint64_t{0}));
      if (line && !json) said = *line;
    }
    if (process.exit_code() != 0) throw base::UserError(base::ExitCode::run, "ui", words_of(process.complaints()));
  }
}

}  // namespace lockstep::serve
