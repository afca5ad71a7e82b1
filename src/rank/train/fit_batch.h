// trainer.auto_find_batch_size: smaller micro-batches until one fits into every rank's memory.
#pragma once

#include <string>

#include "rank/train/run.h"

namespace lockstep::train {

// Collective. Tries a micro-batch of full length; where any rank finds no memory for it, all halve it and double the accumulation, so
// that a step stays the same. Returns what was changed, in words, or nothing. UserError where one sample does not fit.
std::string fit_batch_size(const comm::Group& group, Run& run);

}  // namespace lockstep::train
