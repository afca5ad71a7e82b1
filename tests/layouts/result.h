// What a case leaves behind: the numbers that all ranks report, and every gradient and weight, put together from what ranks hold.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace lockstep::layouts {

// Numbers [begin, begin + values.size()) of a unit's flat buffer.
struct Stretch {
  std::size_t unit = 0;
  std::int64_t begin = 0;
  std::vector<float> values;
};

struct Piece {
  std::string name;
  std::size_t unit = 0;
  std::int64_t begin = 0, count = 0;
};

// What every rank reports alike.
struct Report {
  std::string error;                       // empty: it ran to the end
  std::vector<double> losses, norms;       // by step
  double eval_loss = 0;                    // at the end
  double to_mean = 0;                      // times the first step's gradients: the mean loss's
  double learning_rate = 0, max_norm = 0;  // of that step; 0: no clipping
  bool on_a_gpu = false;
  std::int64_t micro_batches = 0;        // a step
  std::vector<double> traffic, planned;  // gathers, their bytes, reductions, their bytes, of all steps: counted, and as tables say
  std::vector<double> elements;          // of units, padding included; 0: not trained
  std::vector<Piece> pieces;
};

// Of one rank: what it updates.
struct RankResult : Report {
  std::vector<Stretch> gradients, weights;  // of the first step; at the end
  std::vector<Stretch> before, after;       // weights around the first step, where the update is a plain one

  void write(const std::filesystem::path& path) const;
  static RankResult read(const std::filesystem::path& path);
};

// Of all ranks of a case; numbers by unit, empty where it is not trained.
struct Result : Report {
  using Units = std::vector<std::vector<float>>;
  Units gradients, weights, before, after;

  // Says what ranks do not agree on, and what no rank holds.
  static Result of(const std::vector<RankResult>& ranks, std::vector<std::string>& wrong);
};

}  // namespace lockstep::layouts
