// Lines become columns once; charts take means of them.
#include "front/serve/runs/run_log.h"

#include <algorithm>
#include <cmath>
#include <ctime>
#include <limits>

#include "base/json.h"
#include "journal/run_folder.h"

namespace lockstep::serve {
namespace {

using Json = nlohmann::ordered_json;

constexpr double missing = std::numeric_limits<double>::quiet_NaN();
constexpr std::size_t most_events = 2000, sparkline_points = 48;

double number_or_nan(const Json& json, const char* name) {
  const auto found = json.find(name);
  return found != json.end() && found->is_number() ? found->get<double>() : missing;
}

std::string text_or_empty(const Json& json, const char* name) {
  const auto found = json.find(name);
  return found != json.end() && found->is_string() ? found->get<std::string>() : "";
}

std::optional<double> if_finite(double value) { return std::isfinite(value) ? std::optional(value) : std::nullopt; }

// "2026-01-31T12:00:00Z" in seconds since 1970; NaN for other texts.
double seconds_of(const std::string& time) {
  std::tm parts{};
  return ::strptime(time.c_str(), "%Y-%m-%dT%H:%M:%SZ", &parts) != nullptr ? static_cast<double>(::timegm(&parts)) : missing;
}

Json number_json(double value) { return std::isfinite(value) ? Json(value) : Json(nullptr); }

// Cuts [begin, end) into at most `points` stretches of neighbors.
std::vector<std::pair<std::size_t, std::size_t>> stretches(std::size_t begin, std::size_t end, std::size_t points) {
  std::vector<std::pair<std::size_t, std::size_t>> cuts;
  const std::size_t count = end - begin, made = std::min(count, std::max<std::size_t>(points, 1));
  for (std::size_t i = 0; i < made; ++i) cuts.emplace_back(begin + count * i / made, begin + count * (i + 1) / made);
  return cuts;
}

double mean(const std::vector<double>& values, std::size_t begin, std::size_t end) {
  double sum = 0;
  std::size_t count = 0;
  for (std::size_t i = begin; i < end; ++i) {
    if (!std::isfinite(values[i])) continue;
    sum += values[i];
    ++count;
  }
  return count > 0 ? sum / static_cast<double>(count) : missing;
}

}  // namespace

bool RunLog::refresh() {
  base::Lock lock(mutex_);
  const journal::Tail::Update update = tail_.poll();
  if (update.replaced) forget();
  for (const std::string& line : update.lines) take(line);
  return update.replaced;
}

void RunLog::forget() {
  for (std::vector<double>& column : values_) column.clear();
  evaluations_ = Json::array();
  events_ = Json::array();
  numbers_ = {};
  last_ = nullptr;
  first_seconds_ = 0;
}

void RunLog::take(const std::string& line) {
  const auto json = base::json_if_any(line);
  if (!json || !json->is_object()) return;
  if (const std::string time = text_or_empty(*json, "time"); !time.empty()) {
    if (numbers_.first_time.empty()) {
      numbers_.first_time = time;
      first_seconds_ = seconds_of(time);
    }
    numbers_.last_time = time;
  }
  if (json->contains("event")) {
    const std::string event = text_or_empty(*json, "event");
    if (event == "model") {
      numbers_.total_steps = static_cast<std::int64_t>(if_finite(number_or_nan(*json, "total_steps")).value_or(0));
      numbers_.parameters = static_cast<std::int64_t>(if_finite(number_or_nan(*json, "parameters")).value_or(0));
      numbers_.data = text_or_empty(*json, "data");
      numbers_.backend = text_or_empty(*json, "backend");
    }
    numbers_.finished = event == "finished" ? text_or_empty(*json, "reason") : "";
    if (events_.size() < most_events) events_.push_back(*json);
  } else if (json->contains("eval_loss")) {
    numbers_.eval_loss = if_finite(number_or_nan(*json, "eval_loss"));
    if (evaluations_.size() < most_events) evaluations_.push_back(*json);
  } else if (json->contains("loss")) {
    take_step(*json);
  }
}

void RunLog::take_step(const Json& json) {
  for (std::size_t i = 0; i < column_count; ++i) values_[i].push_back(number_or_nan(json, columns[i]));
  values_[column_count - 1].back() = seconds_of(text_or_empty(json, "time")) - first_seconds_;
  last_ = json;
  numbers_.last_step = static_cast<std::int64_t>(if_finite(number_or_nan(json, "step")).value_or(0));
  numbers_.last_loss = if_finite(number_or_nan(json, "loss"));
  numbers_.tokens_per_second = if_finite(number_or_nan(json, "tokens_per_second"));
  numbers_.step_seconds = if_finite(number_or_nan(json, "step_seconds"));
}

RunNumbers RunLog::numbers() {
  base::Lock lock(mutex_);
  RunNumbers numbers = numbers_;
  const std::vector<double>& losses = values_[1];
  for (const auto& [begin, end] : stretches(0, losses.size(), sparkline_points)) {
    const double value = mean(losses, begin, end);
    if (std::isfinite(value)) numbers.sparkline.push_back(value);
  }
  return numbers;
}

Json RunLog::series(std::size_t points, double from, double to) {
  base::Lock lock(mutex_);
  const std::vector<double>& steps = values_[0];
  const auto begin = std::lower_bound(steps.begin(), steps.end(), from), end = std::upper_bound(begin, steps.end(), to);
  const auto cuts = stretches(static_cast<std::size_t>(begin - steps.begin()), static_cast<std::size_t>(end - steps.begin()), points);
  Json made = {{"lines", steps.size()}, {"from", number_json(from)}, {"to", number_json(to)}};
  for (std::size_t column = 0; column < column_count; ++column) {
    Json values = Json::array();
    for (const auto& [first, last] : cuts)  // a mean of steps stands at its last one, where it was reached
      values.push_back(number_json(column == 0 ? steps[last - 1] : mean(values_[column], first, last)));
    made["columns"][columns[column]] = std::move(values);
  }
  Json least = Json::array(), most = Json::array();
  for (const auto& [first, last] : cuts) {
    const auto [low, high] = std::minmax_element(values_[1].begin() + static_cast<std::ptrdiff_t>(first),
                                                 values_[1].begin() + static_cast<std::ptrdiff_t>(last));
    least.push_back(number_json(*low));
    most.push_back(number_json(*high));
  }
  made["columns"]["loss_least"] = std::move(least);
  made["columns"]["loss_most"] = std::move(most);
  made["last"] = last_;
  made["evaluations"] = evaluations_;
  made["events"] = events_;
  return made;
}

std::shared_ptr<RunLog> RunLogs::of(const std::filesystem::path& run) {
  base::Lock lock(mutex_);
  Kept& one = logs_[run.string()];
  if (!one.log) one.log = std::make_shared<RunLog>(journal::RunFolder{run}.metrics());
  one.used = ++uses_;
  const std::shared_ptr<RunLog> log = one.log;
  if (logs_.size() > kept) {
    logs_.erase(std::min_element(logs_.begin(), logs_.end(), [](const auto& a, const auto& b) { return a.second.used < b.second.used; }));
  }
  return log;
}

}  // namespace lockstep::serve
