// Recordings on a CPU: what is recorded runs, its numbers are put back, and a launch runs it again. What a store remembers of slots and
// sums is then all that a recording has to get right, as on a GPU.
#pragma once

#include <ATen/core/Tensor.h>

#include "rank/kernels/graph.h"
#include "rank/train/run.h"

namespace lockstep::layouts {

// Micro-steps of the run are recordings from here on, after so many of each shape.
void replay_micro_steps(train::Run& run, std::int64_t warm_up);

}  // namespace lockstep::layouts
