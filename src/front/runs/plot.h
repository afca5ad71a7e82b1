// Curves of several runs as one SVG picture, made without any library: it opens in every browser.
#pragma once

#include <string>
#include <vector>

#include "front/runs/curves.h"

namespace lockstep::runs {

struct Plot {
  std::string title, x_name, y_name;
  std::vector<Curve> curves;       // drawn in this order, each with its color
  double smoothing = 0;            // weight of the past; above 0 the raw curve stays behind, pale
  bool log_y = false;              // values of 0 and below are left out
  std::size_t most_points = 2000;  // of a curve
};
std::string to_svg(const Plot& plot);

// Round numbers that divide [low, high] into about `count` parts.
std::vector<double> ticks(double low, double high, int count);

}  // namespace lockstep::runs
