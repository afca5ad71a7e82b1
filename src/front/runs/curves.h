// Curves of a run: any number of its metrics, over steps, what was trained, or time.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "front/runs/run_view.h"

namespace lockstep::runs {

enum class Axis { step, trained, hours };

struct Curve {
  std::string name;           // of the run
  std::vector<Point> points;  // y is not finite where the number was not: a gap
};

// Every line that has this number: "loss", "eval_loss", "grad_norm", "tokens_per_second", "rank_seconds.data" (its largest over ranks).
Curve read_curve(const std::filesystem::path& folder, const std::string& metric, Axis axis);
// What a run's lines have numbers of, for a person who mistyped one.
std::vector<std::string> metric_names(const std::filesystem::path& folder);

// An exponential average with this weight of the past, without a pull to 0 at its beginning. 0: as it is.
std::vector<Point> smoothed(const std::vector<Point>& points, double weight);
// At most `most` points that look the same: of each stretch the first, the lowest, the highest and the last one stay, and a gap.
std::vector<Point> thinned(const std::vector<Point>& points, std::size_t most);
// A value for each of `count` equal stretches of the run, for sparklines; fewer where there are fewer points.
std::vector<double> outline(const std::vector<Point>& points, std::size_t count);

}  // namespace lockstep::runs
