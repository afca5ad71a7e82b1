// Loss, perplexity and token accuracy on the validation split, exact whatever the number of ranks.
#pragma once

#include "rank/train/run.h"

namespace lockstep::train {

// Collective. Means per trained token over trainer.eval_batches global batches, or the whole split.
journal::EvalLine evaluate(Run& run);

}  // namespace lockstep::train
