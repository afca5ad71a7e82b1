// The memory of a rank's own buffers by part, to be held against what the layout planned.
#pragma once

#include <vector>

#include "layout/memory/memory.h"
#include "rank/train/run.h"

namespace lockstep::train {

// Of the parts that a plan states exactly, in its order. After a step, before any evaluation.
std::vector<layout::PartBytes> held_buffers(const Run& run);

}  // namespace lockstep::train
