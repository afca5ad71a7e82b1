// Axes with round numbers, a line a run, a legend.
#include "front/runs/plot.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/text.h"
#include "base/utf8.h"
#include "front/runs/picture/strokes.h"

namespace lockstep::runs {
namespace {

constexpr double width = 960, height = 540, left = 76, right = 24, top = 48, bottom = 56;

std::string tick_text(double value) { return std::abs(value) >= 10000 ? base::human_count(value) : fmt::format("{:.6g}", value); }

// From values to places in the picture.
struct Scale {
  double low, high, from, to;
  bool log = false;
  double at(double value) const {
    const double v = log ? std::log10(value) : value;
    return from + (v - low) / (high - low) * (to - from);
  }
};

struct Extent {
  double low = std::numeric_limits<double>::infinity(), high = -low;
  void take(double value) {
    low = std::min(low, value);
    high = std::max(high, value);
  }
  void widen() {
    if (!(low <= high)) low = 0, high = 1;
    if (low == high) low -= std::abs(low) * 0.05 + 0.5, high += std::abs(high) * 0.05 + 0.5;
  }
};

// The same points in the picture.
std::vector<Point> placed(const std::vector<Point>& points, const Scale& x, const Scale& y) {
  std::vector<Point> places;
  for (const Point& point : points) places.push_back({x.at(point.x), y.at(point.y)});
  return places;
}

void draw_axes(Drawing& drawing, const Plot& plot, const Scale& x, const Scale& y) {
  for (const double value : ticks(x.low, x.high, 8)) {
    drawing.labels.push_back({Role::tick, x.at(value), height - bottom + 20, tick_text(value), Anchor::middle});
  }
  for (const double value : ticks(y.low, y.high, 6)) {
    const double at = y.from + (value - y.low) / (y.high - y.low) * (y.to - y.from);
    drawing.lines.push_back({Role::grid, {{left, at}, {width - right, at}}});
    drawing.labels.push_back({Role::tick, left - 8, at + 4, tick_text(y.log ? std::pow(10, value) : value), Anchor::end});
  }
  drawing.labels.push_back({Role::name, (left + width - right) / 2, height - 14, plot.x_name, Anchor::middle});
  drawing.labels.push_back({Role::name, 18, (top + height - bottom) / 2, plot.y_name, Anchor::middle, true});
}

// At most so many characters, so that the names of runs leave room for their curves.
std::string shortened(std::string_view name) {
  constexpr std::size_t most = 40;
  std::size_t bytes = 0;
  for (std::size_t characters = 0; bytes < name.size(); ++characters) {
    if (characters == most) return std::string(name.substr(0, bytes)) + "…";
    bytes += std::max<std::size_t>(1, base::utf8_length(name.substr(bytes)));
  }
  return std::string(name);
}

// Right at the top, wide enough for the longest name.
void draw_legend(Drawing& drawing, const Plot& plot) {
  constexpr std::size_t most = 20;
  constexpr double row_height = 20, key_length = 20;
  std::vector<std::string> names;
  for (const Curve& curve : plot.curves) {
    if (names.size() == most) break;
    names.push_back(shortened(curve.name));
  }
  if (plot.curves.size() > most) names.push_back(fmt::format("and {} more", plot.curves.size() - most));
  double widest = 120;
  for (const std::string& name : names) widest = std::max(widest, write(name).width * font_size(Role::legend));
  const double begin = width - right - widest - 8;
  for (std::size_t i = 0; i < names.size(); ++i) {
    const double row = top + 18 + row_height * static_cast<double>(i);
    drawing.labels.push_back({Role::legend, begin, row, names[i]});
    if (i < most)
      drawing.lines.push_back({.role = Role::key,
                               .points = {{begin - key_length - 8, row - 4}, {begin - 8, row - 4}},
                               .color = curve_colors[i % curve_colors.size()],
                               .thickness = 3});
  }
}

}  // namespace

std::vector<double> ticks(double low, double high, int count) {
  const double rough = (high - low) / std::max(1, count);
  if (!(rough > 0) || !std::isfinite(rough)) return {low};
  const double power = std::pow(10, std::floor(std::log10(rough)));
  double step = 10 * power;
  for (const double nice : {1.0, 2.0, 5.0}) {
    if (nice * power >= rough * 0.999) {
      step = nice * power;
      break;
    }
  }
  std::vector<double> values;
  for (double i = std::ceil(low / step - 1e-9); i * step <= high + step * 1e-9; ++i) values.push_back(i == 0 ? 0.0 : i * step);
  return values;
}

double font_size(Role role) { return role == Role::title ? 16 : role == Role::tick ? 12 : 13; }

Drawing draw(const Plot& plot) {
  struct Drawn {
    std::vector<Point> raw, smooth;
  };
  std::vector<Drawn> drawn;
  Extent across, up;
  for (const Curve& curve : plot.curves) {
    std::vector<Point> points = curve.points;
    for (Point& point : points) {
      if (plot.log_y && point.y <= 0) point.y = std::numeric_limits<double>::quiet_NaN();
    }
    Drawn& one = drawn.emplace_back();
    one.raw = thinned(points, plot.most_points);
    one.smooth = plot.smoothing > 0 ? thinned(smoothed(points, plot.smoothing), plot.most_points) : one.raw;
    for (const Point& point : one.raw) {
      across.take(point.x);
      if (std::isfinite(point.y)) up.take(plot.log_y ? std::log10(point.y) : point.y);
    }
  }
  across.widen();
  up.widen();
  const Scale x{across.low, across.high, left, width - right};
  const Scale y{up.low, up.high, height - bottom, top, plot.log_y};

  Drawing drawing{.title = plot.title, .width = width, .height = height, .lines = {}, .labels = {}};
  drawing.labels.push_back({Role::title, left, 28, plot.title});
  draw_axes(drawing, plot, x, y);
  for (std::size_t i = 0; i < drawn.size(); ++i) {
    const Color color = curve_colors[i % curve_colors.size()];
    if (plot.smoothing > 0)
      drawing.lines.push_back({.role = Role::curve, .points = placed(drawn[i].raw, x, y), .color = color, .thickness = 1, .opacity = 0.25});
    drawing.lines.push_back({.role = Role::curve, .points = placed(drawn[i].smooth, x, y), .color = color, .thickness = 2});
  }
  draw_legend(drawing, plot);
  return drawing;
}

}  // namespace lockstep::runs
