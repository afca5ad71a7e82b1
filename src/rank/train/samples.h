// Text from the model while it trains.
#pragma once

#include "rank/train/run.h"

namespace lockstep::train {

// Collective. Rank r writes the samples i of monitor.sample_prompts with i % ranks == r; rank 0 records all of them, in order.
void write_samples(const Run& run);

}  // namespace lockstep::train
