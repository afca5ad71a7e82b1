// Lines and labels as elements, their looks as a style sheet.
#include <fmt/format.h>

#include <cmath>
#include <string_view>

#include "front/runs/picture/drawing.h"

namespace lockstep::runs {
namespace {

constexpr const char* style = R"(<style>
svg { background: #fff } text { font: 13px system-ui, sans-serif; fill: #333 } .tick { font-size: 12px; fill: #666 }
.title { font-size: 16px; font-weight: 600 } .grid { stroke: #ddd } .name { fill: #444 }
@media (prefers-color-scheme: dark) { svg { background: #16181d } text { fill: #ddd } .tick, .name { fill: #999 } .grid { stroke: #333 } }
</style>
)";

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

std::string_view class_of(Role role) {
  switch (role) {
    case Role::title: return "title";
    case Role::name: return "name";
    case Role::tick: return "tick";
    case Role::grid: return "grid";
    case Role::legend:
    case Role::curve:
    case Role::key: break;
  }
  return "";
}

std::string path_of(const std::vector<Point>& points) {
  std::string path;
  bool drawing = false;
  for (const Point& point : points) {
    const bool there = std::isfinite(point.y);
    if (there)
      path += fmt::format(" {}{:.1f},{:.1f}{}", drawing ? "L" : "M", point.x, point.y, drawing ? "" : "h0");  // h0: a lone point is a dot
    drawing = there;
  }
  return path;
}

std::string line(const Line& one) {
  const std::string color = fmt::format("#{:02x}{:02x}{:02x}", one.color.red, one.color.green, one.color.blue);
  if (one.role == Role::curve)
    return fmt::format(
        "<path d=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"{}\" stroke-linejoin=\"round\" stroke-linecap=\"round\" "
        "opacity=\"{}\"/>\n",
        path_of(one.points), color, one.thickness, one.opacity);
  const Point &from = one.points.front(), &to = one.points.back();
  const std::string look =
      one.role == Role::grid ? "class=\"grid\"" : fmt::format("stroke=\"{}\" stroke-width=\"{}\"", color, one.thickness);
  return fmt::format("<line {} x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\"/>\n", look, from.x, from.y, to.x, to.y);
}

std::string label(const Label& one) {
  const std::string_view kind = class_of(one.role);
  const std::string place = one.upward ? fmt::format("transform=\"translate({:.1f} {:.1f}) rotate(-90)\"", one.x, one.y)
                                       : fmt::format("x=\"{:.1f}\" y=\"{:.1f}\"", one.x, one.y);
  const std::string_view anchor = one.anchor == Anchor::start    ? ""
                                  : one.anchor == Anchor::middle ? " text-anchor=\"middle\""
                                                                 : " text-anchor=\"end\"";
  return fmt::format("<text{} {}{}>{}</text>\n", kind.empty() ? "" : fmt::format(" class=\"{}\"", kind), place, anchor, escaped(one.text));
}

}  // namespace

std::string svg_of(const Drawing& drawing) {
  std::string svg = fmt::format("<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {} {}\" role=\"img\" aria-label=\"{}\">\n",
                                drawing.width, drawing.height, escaped(drawing.title));
  svg += style;
  for (const Line& one : drawing.lines) svg += line(one);
  for (const Label& one : drawing.labels) svg += label(one);
  return svg + "</svg>\n";
}

}  // namespace lockstep::runs
