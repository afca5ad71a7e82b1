// Reads metrics.jsonl by looking for names in its lines.
#include "front/runs/run_view.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <ctime>
#include <nlohmann/json.hpp>

#include "base/file/refusal.h"
#include "base/file/last_name.h"
#include "base/files.h"
#include "base/json.h"
#include "journal/ending.h"
#include "journal/lease.h"
#include "journal/run_folder.h"

namespace lockstep::runs {
namespace {

namespace fs = std::filesystem;

// What stands behind "name": in a line, up to its end.
std::optional<std::string_view> behind(std::string_view line, std::string_view name) {
  std::string key = "\"";
  key += name;
  key += "\":";
  const std::size_t at = line.find(key);
  if (at == std::string_view::npos) return std::nullopt;
  return line.substr(at + key.size());
}

std::string text_in(std::string_view line, std::string_view name) {
  const auto rest = behind(line, name);
  if (!rest || !rest->starts_with('"')) return "";
  return std::string(rest->substr(1, std::min(rest->find('"', 1), rest->size()) - 1));
}

}  // namespace

std::string_view name_of(State state) {
  switch (state) {
    case State::training: return "training";
    case State::complete: return "complete";
    case State::stopped: return "stopped";
    case State::failed: return "failed";
  }
  return "failed";
}

double RunView::remaining_seconds() const {
  return total_steps > step && state == State::training ? static_cast<double>(total_steps - step) * step_seconds : 0;
}

std::optional<double> number_in(std::string_view line, std::string_view name) {
  const auto rest = behind(line, name);
  double value = 0;
  if (!rest || std::from_chars(rest->data(), rest->data() + rest->size(), value).ec != std::errc()) return std::nullopt;
  return std::isfinite(value) ? std::optional(value) : std::nullopt;  // "nan" and "inf" are read as numbers too
}

std::optional<double> seconds_of(std::string_view time) {
  std::tm parts{};
  const char* end = ::strptime(std::string(time).c_str(), "%Y-%m-%dT%H:%M:%SZ", &parts);
  return end == nullptr ? std::nullopt : std::optional(static_cast<double>(::timegm(&parts)));
}

void MetricsScan::line(std::string_view text) {
  if (text.starts_with("{\"step\":") && behind(text, "loss")) {
    const double step = number_in(text, "step").value_or(0);
    // A resumed start writes no step twice; a file that someone made by hand may.
    while (!losses_.empty() && losses_.back().x >= step) losses_.pop_back();
    if (const auto loss = number_in(text, "loss")) losses_.push_back({step, *loss});
    last_step_ = text;
  } else if (const auto loss = number_in(text, "eval_loss"); loss && text.starts_with("{\"step\":")) {
    eval_loss_ = loss;
    best_eval_loss_ = std::min(*loss, best_eval_loss_.value_or(*loss));
  } else {
    event(text);
  }
  if (std::string time = text_in(text, "time"); !time.empty()) {
    if (first_time_.empty()) first_time_ = time;
    last_time_ = std::move(time);
  }
}

void MetricsScan::event(std::string_view text) {
  const auto parsed = base::json_if_any(text);
  if (!parsed || !parsed->is_object()) return;
  const std::string kind = parsed->value("event", "");
  if (kind == "started") end_reason_.clear();
  if (kind == "finished") end_reason_ = parsed->value("reason", "");
  if (const auto total = number_in(text, "total_steps"); kind == "model" && total) total_steps_ = static_cast<std::int64_t>(*total);
}

void MetricsScan::fill(RunView& view) const {
  view.total_steps = total_steps_;
  view.eval_loss = eval_loss_;
  view.best_eval_loss = best_eval_loss_;
  view.started = first_time_;
  view.last_time = last_time_;
  const auto begin = seconds_of(first_time_), end = seconds_of(last_time_);
  view.seconds = begin && end ? *end - *begin : 0;
  view.losses = losses_;
  if (last_step_.empty()) return;
  view.step = static_cast<std::int64_t>(number_in(last_step_, "step").value_or(0));
  view.loss = number_in(last_step_, "loss");
  view.learning_rate = number_in(last_step_, "learning_rate").value_or(0);
  view.step_seconds = number_in(last_step_, "step_seconds").value_or(0);
  view.mfu = number_in(last_step_, "mfu");
  const std::size_t rate = last_step_.find("_per_second\":");
  if (rate == std::string::npos) return;
  view.counted = last_step_.substr(last_step_.rfind('"', rate) + 1, rate - last_step_.rfind('"', rate) - 1);
  view.per_second = number_in(last_step_, view.counted + "_per_second").value_or(0);
}

State state_of(const fs::path& folder, std::string_view end_reason) {
  const auto holder = journal::lease_holder(folder);
  if (holder && !holder->gone) return State::training;
  // What its launcher said of the end counts: ranks that were killed say nothing.
  if (const auto ending = journal::read_ending({folder}))
    return ending->status == "complete" ? State::complete : ending->status == "stopped" ? State::stopped : State::failed;
  return end_reason == "complete" ? State::complete : end_reason == "stopped" ? State::stopped : State::failed;
}

std::string trouble_of(const fs::path& folder, State state) {
  if (state != State::failed) return "";
  const auto ending = journal::read_ending({folder});
  if (!ending) return "Its launcher ended without a word: it was killed, or the machine went down. What was saved is whole.";
  if (!ending->error.empty()) return ending->error;
  return ending->status == "ended" ? "It was ended at once, without a checkpoint of its last steps." : "";
}

RunView read_run(const fs::path& folder) {
  MetricsScan scan;
  const fs::path metrics = journal::RunFolder{folder}.metrics();
  std::error_code error;
  if (fs::exists(metrics, error) && fs::file_size(metrics, error) > 0) {
    const base::MappedFile file(metrics);
    std::string_view text(reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size());
    for (std::size_t end; (end = text.find('\n')) != std::string_view::npos; text.remove_prefix(end + 1)) scan.line(text.substr(0, end));
  }
  RunView view;
  view.folder = folder;
  view.name = base::last_name(folder);
  scan.fill(view);
  view.state = state_of(folder, scan.end_reason());
  view.trouble = trouble_of(folder, view.state);
  return view;
}

std::vector<fs::path> find_runs(const fs::path& output) {
  std::vector<std::pair<fs::file_time_type, fs::path>> found;
  std::error_code error;
  base::refuse_if_hidden(output);
  for (const auto& entry : fs::directory_iterator(output, error)) {
    const journal::RunFolder folder{entry.path()};
    if (!fs::exists(folder.config(), error)) continue;
    const fs::path newest = fs::exists(folder.metrics(), error) ? folder.metrics() : folder.config();
    found.emplace_back(fs::last_write_time(newest, error), entry.path());
  }
  std::sort(found.begin(), found.end(), [](const auto& a, const auto& b) { return a > b; });
  std::vector<fs::path> folders;
  for (auto& [time, path] : found) folders.push_back(std::move(path));
  return folders;
}

}  // namespace lockstep::runs
