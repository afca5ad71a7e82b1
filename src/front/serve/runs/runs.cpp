// Folders, leases and endings as JSON.
#include "front/serve/runs/runs.h"

#include <fmt/format.h>
#include <fcntl.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file/size_on_disk.h"
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

bool is_newer(const fs::path& path, const fs::path& than) {
  std::error_code error;
  const auto time = fs::last_write_time(path, error);
  if (error) return false;
  const auto other = fs::last_write_time(than, error);
  return error || time > other;
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
                    {"bytes", base::size_on_disk(one.path)},
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

Runs::State Runs::state_of(const std::string& name, const RunNumbers& numbers, const std::vector<std::string>& waiting) {
  const RunFolder folder{folders_.output() / name};
  const auto holder = journal::lease_holder(folder.root);
  const auto start = starts_.of(name);
  if (holder && !holder->gone) return {numbers.last_step == 0 ? "starting" : "running", ""};
  if (start && start->lives) return {"starting", ""};
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

RunNumbers Runs::numbers_of(const std::string& name) {
  const fs::path folder = folders_.output() / name;
  const Look now = look(AT_FDCWD, RunFolder{folder}.metrics().string());
  if (now.changed_ns < 0) return {};
  {
    base::Lock lock(mutex_);
    if (const Read& before = read_[name]; before.look == now) return before.numbers;
  }
  const auto log = logs_.of(folder);
  log->refresh();
  Read read{now, log->numbers()};
  base::Lock lock(mutex_);
  return (read_[name] = std::move(read)).numbers;
}

std::uint64_t Runs::bytes_on_disk(const std::string& name) const { return base::size_on_disk(folders_.output() / name); }

Json Runs::card(const std::string& name, const std::vector<std::string>& waiting, const std::optional<std::uint64_t>& bytes) {
  const RunNumbers numbers = numbers_of(name);
  const State state = state_of(name, numbers, waiting);
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
          {"bytes", bytes ? Json(*bytes) : Json(nullptr)}};
}

Json Runs::details(const std::string& name) {
  Json json = card(name, queue_.names(), bytes_on_disk(name));
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

Json Runs::machines(const std::string& name) { return machines_.of(RunFolder{folders_.output() / name}.monitor()); }

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
