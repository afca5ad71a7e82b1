// What the task measures on the validation split, exact whatever the number of ranks.
#pragma once

#include "rank/train/run.h"

namespace lockstep::train {

// Collective over the run's mesh. Over trainer.eval_batches global batches, or the whole split. There is validation data.
journal::EvalLine evaluate(Run& run);

}  // namespace lockstep::train
