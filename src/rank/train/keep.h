// Which activations a run keeps for backward, from trainer.recompute and the memory that is available.
#pragma once

#include <vector>

#include "config/run_config.h"
#include "rank/model/recompute.h"

namespace lockstep::train {

// One entry a block; `automatic` fills the memory that is available to activations.
std::vector<model::Keep> keep_for(const config::RunConfig& config, const model::MicroBatch& batch, std::int64_t element_size,
                                  std::int64_t available_bytes);

// What training `rows` tokens at once takes beside weights, gradients, moments and activations.
std::int64_t reserved_bytes(const config::RunConfig& config, std::int64_t rows, std::int64_t element_size, int ranks);

// What an evaluation of `rows` tokens at once takes beside training's own memory.
std::int64_t evaluation_bytes(const config::RunConfig& config, std::int64_t rows, std::int64_t element_size);

}  // namespace lockstep::train
