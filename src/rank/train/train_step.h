// One step, and the numbers it leaves behind.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "rank/train/moment.h"
#include "rank/train/run.h"

namespace lockstep::train {

// What ranks sum at the end of a step, f64 on the device: one small all-reduce carries all of it.
//   [loss sum, trained tokens, ranks that were asked to stop, not-finite flag of each rank.., peak memory of each rank..]
struct Totals {
  enum Slot { loss, tokens, stop, per_rank };
  at::Tensor numbers;  // [per_rank + 2 * ranks]
};

// A step's outcome; the tensors are still being computed when train_step() returns on a GPU.
struct StepOutcome {
  std::int64_t step = 0;
  double learning_rate = 0;
  double data_seconds = 0;
  Moment backward_done, reduced;      // between them: the reduction that backward did not hide
  std::vector<std::int64_t> samples;  // this rank's sample numbers
  data::Position position;            // of the data behind the step
  at::Tensor totals;                  // as in Totals, summed over ranks
  at::Tensor control;                 // the optimizer's numbers, laid out as kernels::Control
};

// Collective.
StepOutcome train_step(Run& run);

}  // namespace lockstep::train
