// One step, and the numbers it leaves behind.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "rank/train/moment.h"
#include "rank/train/run.h"
#include "record/control.h"

namespace lockstep::train {

// What ranks sum at the end of a step, f64 on the device: one small all-reduce carries all of it.
//   [loss sum, trained tokens, wishes, not-finite flag of each rank.., peak memory of each rank..]
// Wishes are one number, so that the sum keeps its length: a rank that a signal asked to stop adds 1, rank 0 adds what the control file
// asks for, times `from_control_file`.
struct Totals {
  enum Slot { loss, tokens, wishes, per_rank };
  static constexpr double from_control_file = 1 << 20;  // more than there are ranks
};

// What Totals::wishes says.
record::Wishes wishes_in(double sum);

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
