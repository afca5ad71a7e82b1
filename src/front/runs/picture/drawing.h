// What a picture is made of, before it becomes SVG or PNG: lines and labels, in units of its own.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "front/runs/run_view.h"

namespace lockstep::runs {

enum class Role { title, name, tick, legend, grid, curve, key };  // key: the bit of line beside a legend

struct Color {
  std::uint8_t red = 0, green = 0, blue = 0;
};
// Told apart by people with any kind of color vision (Okabe and Ito), on white and on dark.
inline constexpr std::array<Color, 8> curve_colors = {{{0x00, 0x72, 0xb2},
                                                       {0xd5, 0x5e, 0x00},
                                                       {0x00, 0x9e, 0x73},
                                                       {0xcc, 0x79, 0xa7},
                                                       {0xe6, 0x9f, 0x00},
                                                       {0x56, 0xb4, 0xe9},
                                                       {0x8c, 0x6b, 0xb1},
                                                       {0x77, 0x77, 0x77}}};

struct Line {
  Role role;
  std::vector<Point> points;  // a point that is not finite is a gap
  Color color = {};           // of curves and keys
  double thickness = 1, opacity = 1;
};

enum class Anchor { start, middle, end };

struct Label {
  Role role;
  double x, y;  // of the anchor, on the baseline; y grows downward
  std::string text;
  Anchor anchor = Anchor::start;
  bool upward = false;  // read from below
};
double font_size(Role role);

struct Drawing {
  std::string title;
  double width, height;
  std::vector<Line> lines;  // in the order in which they are drawn
  std::vector<Label> labels;
};

// Dark where the browser is.
std::string svg_of(const Drawing& drawing);
// On white, `scale` pixels a unit.
std::string png_of(const Drawing& drawing, int scale = 2);

}  // namespace lockstep::runs
