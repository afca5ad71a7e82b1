// Curves of several runs as one picture, made without any library: svg_of() opens in every browser, png_of() everywhere else.
#pragma once

#include <string>
#include <vector>

#include "front/runs/curves.h"
#include "front/runs/picture/drawing.h"

namespace lockstep::runs {

struct Plot {
  std::string title, x_name, y_name;
  std::vector<Curve> curves;       // drawn in this order, each with its color
  double smoothing = 0;            // weight of the past; above 0 the raw curve stays behind, pale
  bool log_y = false;              // values of 0 and below are left out
  std::size_t most_points = 2000;  // of a curve
};
Drawing draw(const Plot& plot);

// Round numbers that divide [low, high] into about `count` parts.
std::vector<double> ticks(double low, double high, int count);

}  // namespace lockstep::runs
