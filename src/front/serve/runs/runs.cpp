// Folders, leases and endings as JSON.
#include "front/serve/runs/runs.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>

#include "base/clock.h"
#include "base/error.h"
#include "base/files.h"
#include "base/json.h"
#include "base/text.h"
#include "config/config.h"
#include "config/table/values.h"
#include "journal/ending.h"
#include "journal/lease.h"
#include "journal/run_folder.h"
#include "journal/tail.h"

namespace lockstep::serve {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;
using journal::RunFolder;

constexpr double size_holds_s = 20;

bool is_newer(const fs::path& path, const fs::path& than) {
  std::error_code error;
  const auto time = fs::last_write_time(path, error);
  if (error) return false;
  const auto other = fs::last_write_time(than, error);
  return error || time > other;
}

// What lines of one start follow each other by; folders of runs say when they were last at work.
std::int64_t touched(const fs::path& run) {
  std::error_code error;
  auto newest = fs::last_write_time(run, error);
  for (const fs::path& path : {RunFolder{run}.metrics(), RunFolder{run}.config()}) {
    if (const auto time = fs::last_write_time(path, error); !error && time > newest) newest = time;
  }
  return newest.time_since_epoch().count();
}

std::uint64_t bytes_in(const fs::path& folder) {
  std::uint64_t bytes = 0;
  std::error_code error;
  for (auto entry = fs::recursive_directory_iterator(folder, error); !error && entry != fs::end(entry); entry.increment(error)) {
    std::error_code here;
    if (entry->is_regular_file(here) && !entry->is_symlink(here)) bytes += entry->file_size(here);
  }
  return bytes;
}

Json if_any(const std::optional<double>& value) { return value ? Json(*value) : Json(nullptr); }

// Every setting, those that differ from the defaults first.
Json settings_of(const config::RunConfig& config) {
  const auto values = config::key_values(config), standard = config::key_values(config::RunConfig());
  Json changed = Json::array(), others = Json::array();
  for (std::size_t i = 0; i < values.size(); ++i) {
    const bool differs = values[i].value != standard[i].value;
    (differs ? changed : others).push_back({{"key", values[i].key}, {"value", values[i].value}, {"changed", differs}});
  }
  for (Json& other : others) changed.push_back(std::move(other));
  return changed;
}

Json checkpoints_in(const fs::path& folder) {
  Json list = Json::array();
  std::error_code error;
  const std::string best = fs::read_symlink(folder / "best", error).filename().string();
  for (const journal::CheckpointEntry& one : journal::list_checkpoints(folder)) {
    list.push_back({{"step", one.step},
                    {"name", one.path.filename().string()},
                    {"path", one.path.string()},
                    {"bytes", bytes_in(one.path)},
                    {"best", one.path.filename().string() == best}});
  }
  return list;
}

Json ranks_with_logs(const RunFolder& folder) {
  std::vector<std::int64_t> ranks;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder.rank_logs(), error)) {
    if (const auto rank = base::parse_integer(entry.path().stem().string())) ranks.push_back(*rank);
  }
  std::sort(ranks.begin(), ranks.end());
  return ranks;
}

}  // namespace

Runs::State Runs::state_of(const std::string& name, const RunNumbers& numbers) {
  const RunFolder folder{folders_.output() / name};
  const auto holder = journal::lease_holder(folder.root);
  const auto start = starts_.of(name);
  if (holder && !holder->gone) return {numbers.last_step == 0 ? "starting" : "running", ""};
  if (start && start->lives) return {"starting", ""};
  const auto waiting = queue_.names();
  if (std::find(waiting.begin(), waiting.end(), name) != waiting.end())
    return {"waiting", waiting.front() == name && !queue_.trouble().empty() ? queue_.trouble()
                                                                            : "It begins when no other run trains and the GPUs are free."};
  const auto ending = journal::read_ending(folder);
  const bool start_failed = start && (!ending || is_newer(folders_.own() / (name + ".start"), folder.root / "end.json"));
  if (start_failed && numbers.finished.empty())
    return {"failed", base::trim(start->printed).empty() ? "It ended without a word: its log could not be written, or it was killed."
                                                         : start->printed};
  if (ending) return {ending->status, ending->report.empty() ? ending->error : ending->report};
  if (!numbers.finished.empty()) return {numbers.finished, ""};
  return {"killed", "The launcher ended without a word: it was killed, or the machine went down. What was saved is whole."};
}

std::uint64_t Runs::bytes_lately(const std::string& name) {
  base::Lock lock(mutex_);
  Sized& size = sizes_[name];
  if (size.looked_ns == 0 || base::seconds_since(size.looked_ns) > size_holds_s)
    size = {bytes_in(folders_.output() / name), base::now_ns()};
  return size.bytes;
}

RunNumbers Runs::numbers_of(const std::string& name) {
  const fs::path folder = folders_.output() / name;
  struct stat file = {};
  if (::stat(RunFolder{folder}.metrics().c_str(), &file) != 0) return {};
  Read looks{.inode = file.st_ino,
             .bytes = static_cast<std::uint64_t>(file.st_size),
             .written_ns = file.st_mtim.tv_sec * 1'000'000'000 + file.st_mtim.tv_nsec};
  {
    base::Lock lock(mutex_);
    const Read& before = read_[name];
    if (before.inode == looks.inode && before.bytes == looks.bytes && before.written_ns == looks.written_ns) return before.numbers;
  }
  const auto log = logs_.of(folder);
  log->refresh();
  looks.numbers = log->numbers();
  base::Lock lock(mutex_);
  return (read_[name] = std::move(looks)).numbers;
}

Json Runs::card(const std::string& name) {
  const RunNumbers numbers = numbers_of(name);
  const State state = state_of(name, numbers);
  return {{"name", name},
          {"state", state.word},
          {"reason", state.reason},
          {"step", numbers.last_step},
          {"total_steps", numbers.total_steps},
          {"loss", if_any(numbers.last_loss)},
          {"eval_loss", if_any(numbers.eval_loss)},
          {"tokens_per_second", if_any(numbers.tokens_per_second)},
          {"step_seconds", if_any(numbers.step_seconds)},
          {"parameters", numbers.parameters},
          {"data", numbers.data},
          {"started", numbers.first_time},
          {"updated", numbers.last_time},
          {"sparkline", numbers.sparkline},
          {"bytes", bytes_lately(name)}};
}

Json Runs::list() {
  std::map<std::string, std::int64_t> found;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folders_.output(), error)) {
    const std::string name = entry.path().filename().string();
    const RunFolder folder{entry.path()};
    std::error_code here;
    if (!Folders::is_name(name) || !entry.is_directory(here) || !folders_.allows(entry.path())) continue;
    if (fs::exists(folder.config(), here) || fs::exists(folder.metrics(), here)) found[name] = touched(entry.path());
  }
  for (const std::string& name : starts_.names()) {  // those that have not come to a folder of their own
    if (const auto time = fs::last_write_time(folders_.own() / (name + ".start"), error); Folders::is_name(name) && !error)
      found.emplace(name, time.time_since_epoch().count());
  }
  for (const std::string& name : queue_.names()) found[name] = std::numeric_limits<std::int64_t>::max();
  std::vector<std::pair<std::int64_t, std::string>> newest;
  for (const auto& [name, time] : found) newest.emplace_back(-time, name);
  std::sort(newest.begin(), newest.end());
  Json list = Json::array();
  for (const auto& [time, name] : newest) list.push_back(card(name));
  return list;
}

Json Runs::details(const std::string& name) {
  Json json = card(name);
  const RunFolder folder{folders_.output() / name};
  json["folder"] = folder.root.string();
  json["ranks"] = ranks_with_logs(folder);
  json["checkpoints"] = Json::array();
  json["settings"] = Json::array();
  std::error_code error;
  if (fs::exists(folder.config(), error)) {
    try {
      const config::RunConfig config = config::load_resolved(folder.config());
      json["settings"] = settings_of(config);
      const std::string& elsewhere = config.trainer.checkpoint_dir;
      if (elsewhere.empty() || folders_.allows(elsewhere))
        json["checkpoints"] = checkpoints_in(elsewhere.empty() ? folder.checkpoints() : fs::path(elsewhere));
    } catch (const base::UserError& mistake) {
      json["config_error"] = mistake.what();
    }
  }
  if (const auto ending = journal::read_ending(folder)) {
    json["ending"] = {
        {"status", ending->status}, {"exit_code", ending->exit_code}, {"error", ending->error},         {"report", ending->report},
        {"resume", ending->resume}, {"seconds", ending->seconds},     {"last_step", ending->last_step}, {"time", ending->time}};
    if (ending->rank) json["ending"]["rank"] = *ending->rank;
  }
  const std::string state = json["state"];
  const bool busy = state == "running" || state == "starting";
  json["resumable"] = !busy && !json["checkpoints"].empty();
  json["why_not_resumable"] = busy                          ? "it is being trained"
                              : json["checkpoints"].empty() ? "it has no checkpoint: nothing was saved before it ended"
                                                            : "";
  if (const auto start = starts_.of(name)) json["printed"] = start->printed;
  return json;
}

Json Runs::log_lines(const std::string& name, int rank, int lines) {
  if (rank < 0) {
    const auto start = starts_.of(name);
    return {{"lines", start ? base::split(start->printed, '\n') : std::vector<std::string>()}};
  }
  return {{"lines", journal::last_lines(RunFolder{folders_.run(name)}.rank_log(rank), std::clamp(lines, 1, 2000))}};
}

std::uint64_t Runs::bytes_on_disk(const std::string& name) { return bytes_in(folders_.run(name)); }

Json Runs::machines(const std::string& name) { return machines_.of(RunFolder{folders_.output() / name}.monitor()); }

bool Runs::some_train() {
  const Json all = list();
  return std::any_of(all.begin(), all.end(), [](const Json& one) { return one["state"] == "running" || one["state"] == "starting"; });
}

void Runs::remove(const std::string& name) {
  queue_.remove(name);
  const auto start = starts_.of(name);
  const fs::path folder = folders_.output() / name;
  const auto holder = journal::lease_holder(folder);
  if ((holder && !holder->gone) || (start && start->lives)) throw base::usage_error("ui", "{} is being trained. Stop it first.", name);
  std::error_code error;
  if (fs::is_directory(folder, error)) base::real_files().remove_all(folders_.run(name));
  starts_.forget(name);
}

}  // namespace lockstep::serve
