// One step, and the numbers it leaves behind.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string_view>
#include <vector>

#include "rank/model/sums/totals.h"
#include "rank/train/step/moment.h"
#include "rank/train/run.h"
#include "journal/control.h"

namespace lockstep::train {

// Sums that every step has (model/sums/totals.h): one small all-reduce carries them, and what task and layers add.
namespace sum {
inline constexpr std::string_view loss = "loss", trained = "trained";  // the summed loss, and what it is of: tokens
inline constexpr std::string_view squares = "squares";                 // of gradients, one per trained unit
// Wishes are one number: a rank that a signal asked to stop adds 1, rank 0 adds what the control file asks for, times from_control_file.
inline constexpr std::string_view wishes = "wishes";
inline constexpr double from_control_file = 1 << 20;                                       // more than there are ranks
inline constexpr std::string_view seconds = "seconds";                                     // so far, journal::part_count a rank
inline constexpr std::string_view not_finite = "not finite", peak_memory = "peak memory";  // one a rank
}  // namespace sum
std::vector<model::Sum> sums_of_a_step(int ranks, std::int64_t square_sums);

// What sum::wishes says.
journal::Wishes wishes_in(double total);

// A step's outcome; the tensors are still being computed when train_step() returns on a GPU.
struct StepOutcome {
  std::int64_t step = 0;
  double learning_rate = 0;
  double data_seconds = 0;
  Moment backward_done, reduced;      // between them: the reduction that backward did not hide
  std::vector<std::int64_t> samples;  // this rank's sample numbers
  data::Position position;            // of the data behind the step
  at::Tensor totals;                  // Run::totals' numbers, summed over ranks; good until the next step
  at::Tensor control;                 // the optimizer's numbers, laid out as kernels::Control
};

// Collective.
StepOutcome train_step(Run& run);

}  // namespace lockstep::train
