// What fits into memory: how much a block keeps of a micro-batch, and with trainer.auto_find_batch_size how large that is.
#pragma once

#include <string>

#include "rank/train/run.h"

namespace lockstep::train {

// Collective. Gradients in the form, and as many activations of a micro-batch kept, as memory holds beside weights and moments, or as the
// settings say.
void choose_memory(const comm::Group& group, Run& run);

// Collective. Tries a micro-batch of full length; where any rank finds no memory for it, all halve it and double the accumulation, so
// that a step stays the same; what blocks keep is chosen anew, for a single sample down to inputs alone. Returns what was changed, in
// words, or nothing. UserError where one sample does not fit.
std::string fit_batch_size(const comm::Group& group, Run& run);

}  // namespace lockstep::train
