// Totals of a run for summary.json.
#pragma once

#include <optional>
#include <vector>

#include "layout/flops.h"
#include "layout/memory/memory.h"
#include "rank/train/run.h"

namespace lockstep::train {

class Summary {
 public:
  explicit Summary(const Run& run);
  void add(std::int64_t step, double seconds, double loss, double trained);
  void add_evaluation(const journal::EvalLine& line);
  // Model FLOPs utilization at this rate; none where the device's peak is unknown. Of records the matrices alone count, and trained tokens
  // alone: a lower bound.
  std::optional<double> mfu(double trained_per_second) const;
  void write() const;  // rank 0

 private:
  const Run& run_;
  std::string device_name_;
  layout::Flops flops_;                  // of one of what the task counts
  std::optional<double> ideal_seconds_;  // of the same, at the peak of all ranks' devices together
  std::int64_t start_ns_;
  std::int64_t first_step_;
  std::vector<layout::PartBytes> buffers_;  // after the first step
  std::vector<double> seconds_, losses_, trained_;
  std::vector<journal::EvalLine> evaluations_;
};

}  // namespace lockstep::train
