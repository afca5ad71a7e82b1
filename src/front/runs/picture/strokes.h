// Letters as a pen draws them: strokes of lines and arcs, so that pictures have text without any font installed.
#pragma once

#include <string_view>
#include <vector>

#include "front/runs/run_view.h"

namespace lockstep::runs {

using Stroke = std::vector<Point>;

// In units of the font size: x from 0 on, y upward from the baseline. What is not ASCII becomes a box, one a character.
struct Writing {
  std::vector<Stroke> strokes;
  double width = 0;
};
Writing write(std::string_view text);

}  // namespace lockstep::runs
