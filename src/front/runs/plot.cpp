// Axes with round numbers, a line a run, a legend.
#include "front/runs/plot.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "base/text.h"

namespace lockstep::runs {
namespace {

constexpr double width = 960, height = 540, left = 76, right = 24, top = 48, bottom = 56;
// Told apart by people with any kind of color vision (Okabe and Ito), on white and on dark.
constexpr std::array colors = {"#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#8c6bb1", "#777777"};

std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '&')
      out += "&amp;";
    else if (c == '<')
      out += "&lt;";
    else if (c == '>')
      out += "&gt;";
    else if (c == '"')
      out += "&quot;";
    else if (static_cast<unsigned char>(c) >= 0x20)
      out += c;
  }
  return out;
}

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

std::string path_of(const std::vector<Point>& points, const Scale& x, const Scale& y) {
  std::string path;
  for (const Point& point : points) path += fmt::format("{}{:.1f},{:.1f}", path.empty() ? "M" : " L", x.at(point.x), y.at(point.y));
  return path;
}

std::string line(const std::string& path, const char* color, double thickness, double opacity) {
  return fmt::format("<path d=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"{}\" stroke-linejoin=\"round\" opacity=\"{}\"/>\n", path,
                     color, thickness, opacity);
}

std::string axes(const Plot& plot, const Scale& x, const Scale& y) {
  std::string svg;
  for (const double value : ticks(x.low, x.high, 8)) {
    svg += fmt::format("<text class=\"tick\" x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"middle\">{}</text>\n", x.at(value),
                       height - bottom + 20, tick_text(value));
  }
  for (const double value : ticks(y.low, y.high, 6)) {
    const double at = y.from + (value - y.low) / (y.high - y.low) * (y.to - y.from);
    svg += fmt::format("<line class=\"grid\" x1=\"{}\" y1=\"{:.1f}\" x2=\"{}\" y2=\"{:.1f}\"/>\n", left, at, width - right, at);
    svg += fmt::format("<text class=\"tick\" x=\"{}\" y=\"{:.1f}\" text-anchor=\"end\">{}</text>\n", left - 8, at + 4,
                       tick_text(y.log ? std::pow(10, value) : value));
  }
  svg += fmt::format("<text class=\"name\" x=\"{:.1f}\" y=\"{}\" text-anchor=\"middle\">{}</text>\n", (left + width - right) / 2,
                     height - 14, escaped(plot.x_name));
  svg += fmt::format("<text class=\"name\" transform=\"translate(18 {:.1f}) rotate(-90)\" text-anchor=\"middle\">{}</text>\n",
                     (top + height - bottom) / 2, escaped(plot.y_name));
  return svg;
}

constexpr const char* style = R"(<style>
svg { background: #fff } text { font: 13px system-ui, sans-serif; fill: #333 } .tick { font-size: 12px; fill: #666 }
.title { font-size: 16px; font-weight: 600 } .grid { stroke: #ddd } .name { fill: #444 }
@media (prefers-color-scheme: dark) { svg { background: #16181d } text { fill: #ddd } .tick, .name { fill: #999 } .grid { stroke: #333 } }
</style>
)";

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

std::string to_svg(const Plot& plot) {
  struct Drawn {
    std::vector<Point> raw, smooth;
  };
  std::vector<Drawn> drawn;
  Extent across, up;
  for (const Curve& curve : plot.curves) {
    std::vector<Point> points = curve.points;
    std::erase_if(points, [&](const Point& point) { return !std::isfinite(point.y) || (plot.log_y && point.y <= 0); });
    Drawn& one = drawn.emplace_back();
    one.raw = thinned(points, plot.most_points);
    one.smooth = plot.smoothing > 0 ? thinned(smoothed(points, plot.smoothing), plot.most_points) : one.raw;
    for (const Point& point : one.raw) {
      across.take(point.x);
      up.take(plot.log_y ? std::log10(point.y) : point.y);
    }
  }
  across.widen();
  up.widen();
  const Scale x{across.low, across.high, left, width - right};
  const Scale y{up.low, up.high, height - bottom, top, plot.log_y};

  std::string svg = fmt::format("<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {} {}\" role=\"img\" aria-label=\"{}\">\n", width,
                                height, escaped(plot.title));
  svg += style;
  svg += fmt::format("<text class=\"title\" x=\"{}\" y=\"28\">{}</text>\n", left, escaped(plot.title));
  svg += axes(plot, x, y);
  for (std::size_t i = 0; i < drawn.size(); ++i) {
    const char* color = colors[i % colors.size()];
    if (plot.smoothing > 0) svg += line(path_of(drawn[i].raw, x, y), color, 1, 0.25);
    svg += line(path_of(drawn[i].smooth, x, y), color, 2, 1);
    const double row = top + 18 + 20 * static_cast<double>(i);
    svg += fmt::format("<line x1=\"{}\" y1=\"{}\" x2=\"{}\" y2=\"{}\" stroke=\"{}\" stroke-width=\"3\"/>\n", width - right - 210, row - 4,
                       width - right - 190, row - 4, color);
    svg += fmt::format("<text x=\"{}\" y=\"{}\">{}</text>\n", width - right - 182, row, escaped(plot.curves[i].name));
  }
  return svg + "</svg>\n";
}

}  // namespace lockstep::runs
