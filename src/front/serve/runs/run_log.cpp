// Lines become columns once; charts take means of them.
#include "front/serve/runs/run_log.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <ctime>
#include <limits>

#include "base/json.h"
#include "base/text.h"
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

// To four digits, which is more than a sparkline shows.
double shortened(double value) { return base::parse_number(fmt::format("{:.4g}", value)).value_or(value); }

std::int64_t whole(double value) {
  constexpr double most = 9e15;  // what a double counts one by one
  return std::isfinite(value) ? static_cast<std::int64_t>(std::clamp(value, -most, most)) : 0;
}

// The newest stay, and what says how a run began.
void keep_newest(Json& events, std::size_t most) {
  if (events.size() <= most) return;
  const auto may_go = [](const Json& event) { return event["event"] != "started" && event["event"] != "model"; };
  const auto oldest = std::find_if(events.begin(), events.end(), may_go);
  events.erase(oldest == events.end() ? events.begin() : oldest);
}

// Every second one stays: a curve keeps its shape.
void keep_every_second(Json& list, std::size_t most) {
  if (list.size() <= most) return;
  Json kept = Json::array();
  for (std::size_t i = 1; i < list.size(); i += 2) kept.push_back(std::move(list[i]));
  list = std::move(kept);
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
      numbers_.total_steps = whole(number_or_nan(*json, "total_steps"));
      numbers_.parameters = whole(number_or_nan(*json, "parameters"));
      numbers_.data = text_or_empty(*json, "data");
      numbers_.backend = text_or_empty(*json, "backend");
    }
    numbers_.finished = event == "finished" ? text_or_empty(*json, "reason") : "";
    events_.push_back(*json);
    keep_newest(events_, most_events);
  } else if (json->contains("eval_loss")) {
    numbers_.eval_loss = if_finite(number_or_nan(*json, "eval_loss"));
    evaluations_.push_back(*json);
    keep_every_second(evaluations_, most_events);
  } else if (json->contains("loss")) {
    take_step(*json);
  }
}

void RunLog::take_step(const Json& json) {
  // A resumed run writes no step twice; a file that someone put together may.
  const double step = number_or_nan(json, "step");
  if (!std::isfinite(step)) return;
  while (!values_[0].empty() && values_[0].back() >= step) {
    for (std::vector<double>& column : values_) column.pop_back();
  }
  for (std::size_t i = 0; i < column_count; ++i) values_[i].push_back(number_or_nan(json, columns[i]));
  // A clock that was set back, or another machine's, must not turn time around: charts are drawn from left to right.
  std::vector<double>& seconds = values_[column_count - 1];
  seconds.back() = seconds_of(text_or_empty(json, "time")) - first_seconds_;
  if (const double before = seconds.size() > 1 ? seconds[seconds.size() - 2] : 0; !(seconds.back() >= before)) seconds.back() = before;
  last_ = json;
  numbers_.last_step = whole(step);
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
    if (std::isfinite(value)) numbers.sparkline.push_back(shortened(value));
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
    double low = missing, high = missing;
    for (std::size_t i = first; i < last; ++i) low = std::fmin(low, values_[1][i]), high = std::fmax(high, values_[1][i]);  // not NaN's
    least.push_back(number_json(low));
    most.push_back(number_json(high));
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
