// Numbers by name from lines; averages and thinning.
#include "front/runs/curves.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>

#include "base/files.h"
#include "base/json.h"
#include "journal/run_folder.h"

namespace lockstep::runs {
namespace {

namespace fs = std::filesystem;

template <typename OnLine>
void each_line(const fs::path& folder, OnLine on_line) {
  const fs::path metrics = journal::RunFolder{folder}.metrics();
  std::error_code error;
  if (!fs::exists(metrics, error) || fs::file_size(metrics, error) == 0) return;
  const base::MappedFile file(metrics);
  std::string_view text(reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size());
  for (std::size_t end; (end = text.find('\n')) != std::string_view::npos; text.remove_prefix(end + 1)) on_line(text.substr(0, end));
}

std::string_view time_in(std::string_view line) {
  constexpr std::string_view key = "\"time\":\"";
  const std::size_t at = line.rfind(key);
  return at == std::string_view::npos ? std::string_view() : line.substr(at + key.size(), 20);
}

// "rank_seconds.data": the number of the rank that has the most.
std::optional<double> largest_of(std::string_view line, std::string_view outer, const std::string& inner) {
  const auto json = base::json_if_any(line);
  if (!json || !json->is_object()) return std::nullopt;
  const auto found = json->find(std::string(outer));
  if (found == json->end() || !found->is_object() || !found->contains(inner)) return std::nullopt;
  const auto& list = (*found)[inner];
  std::optional<double> most;
  for (const auto& one : list.is_array() ? list : nlohmann::ordered_json::array({list})) {
    if (one.is_number()) most = std::max(most.value_or(one.get<double>()), one.get<double>());
  }
  return most;
}

}  // namespace

Curve read_curve(const fs::path& folder, const std::string& metric, Axis axis) {
  Curve curve;
  const std::size_t dot = metric.find('.');
  std::optional<double> begun;
  double trained = 0, now = 0;
  each_line(folder, [&](std::string_view line) {
    if (!begun) begun = seconds_of(time_in(line));
    if (!line.starts_with("{\"step\":")) return;
    // What is counted stands before its own rate: "tokens", then "tokens_per_second".
    if (const std::size_t rate = line.find("_per_second\":"); rate != std::string_view::npos) {
      const std::size_t name = line.rfind('"', rate) + 1;
      trained = number_in(line, line.substr(name, rate - name)).value_or(trained);
    }
    const auto value = dot == std::string::npos ? number_in(line, metric)
                                                : largest_of(line, std::string_view(metric).substr(0, dot), metric.substr(dot + 1));
    const bool is_gap = !value && line.find(fmt::format("\"{}\":null", metric)) != std::string_view::npos;
    if (!value && !is_gap) return;
    // A clock that was set back, or another machine's, does not turn the curve around.
    now = std::max(now, seconds_of(time_in(line)).value_or(now));
    const double x = axis == Axis::step      ? number_in(line, "step").value_or(0)
                     : axis == Axis::trained ? trained
                                             : std::max(0.0, now - begun.value_or(now)) / 3600;
    curve.points.push_back({x, value.value_or(std::numeric_limits<double>::quiet_NaN())});
  });
  const auto is_finite = [](const Point& point) { return std::isfinite(point.y); };
  if (std::none_of(curve.points.begin(), curve.points.end(), is_finite)) curve.points.clear();  // nothing but gaps
  return curve;
}

std::vector<std::string> metric_names(const fs::path& folder) {
  std::set<std::string> names;
  std::string last_step, last_evaluation;
  each_line(folder, [&](std::string_view line) {
    if (line.starts_with("{\"step\":")) (line.find("\"eval_loss\"") == std::string_view::npos ? last_step : last_evaluation) = line;
  });
  for (const std::string& line : {last_step, last_evaluation}) {
    const auto json = base::json_if_any(line);
    if (!json || !json->is_object()) continue;
    for (const auto& [name, value] : json->items()) {
      if (value.is_number() || value.is_null()) names.insert(name);
      if (name == "rank_seconds") {
        for (const auto& [part, list] : value.items()) names.insert("rank_seconds." + part);
      }
    }
  }
  names.erase("step");
  return {names.begin(), names.end()};
}

std::vector<Point> smoothed(const std::vector<Point>& points, double weight) {
  std::vector<Point> out = points;
  double sum = 0, mass = 0;
  for (Point& point : out) {
    if (!std::isfinite(point.y)) continue;  // a gap stays one, and what follows goes on from before it
    sum = weight * sum + (1 - weight) * point.y;
    mass = weight * mass + (1 - weight);
    point.y = sum / mass;
  }
  return out;
}

std::vector<Point> thinned(const std::vector<Point>& points, std::size_t most) {
  const std::size_t stretches = std::max<std::size_t>(1, most / 4);
  if (points.size() <= most) return points;
  std::vector<Point> kept;
  for (std::size_t i = 0; i < stretches; ++i) {
    const auto begin = points.begin() + static_cast<std::ptrdiff_t>(points.size() * i / stretches);
    const auto end = points.begin() + static_cast<std::ptrdiff_t>(points.size() * (i + 1) / stretches);
    std::set<std::ptrdiff_t> chosen = {0, end - begin - 1};
    auto low = end, high = end, gap = end;
    for (auto at = begin; at != end; ++at) {
      if (!std::isfinite(at->y))
        gap = at;
      else {
        if (low == end || at->y < low->y) low = at;
        if (high == end || at->y >= high->y) high = at;
      }
    }
    for (const auto& one : {low, high, gap}) {
      if (one != end) chosen.insert(one - begin);
    }
    for (const std::ptrdiff_t at : chosen) kept.push_back(begin[at]);
  }
  return kept;
}

std::vector<double> outline(const std::vector<Point>& points, std::size_t count) {
  count = std::min(count, points.size());
  std::vector<double> values;
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t begin = points.size() * i / count, end = points.size() * (i + 1) / count;
    double sum = 0;
    for (std::size_t at = begin; at < end; ++at) sum += points[at].y;
    values.push_back(sum / static_cast<double>(end - begin));
  }
  return values;
}

}  // namespace lockstep::runs
