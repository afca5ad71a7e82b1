// Loss on the validation split, exact whatever the number of ranks.
#pragma once

#include "rank/train/run.h"

namespace lockstep::train {

// Collective. Mean loss per token over trainer.eval_batches global batches, or the whole split.
record::EvalLine evaluate(Run& run);

}  // namespace lockstep::train
