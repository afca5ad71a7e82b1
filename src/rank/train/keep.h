// Which activations a run keeps for backward, from trainer.recompute and the memory that is free.
#pragma once

#include <c10/core/Device.h>

#include <vector>

#include "config/run_config.h"
#include "rank/model/recompute.h"

namespace lockstep::train {

// One entry a block. To be asked when weights, gradients and moments stand in memory: `automatic` fills what is left.
std::vector<model::Keep> keep_for(const config::RunConfig& config, const model::MicroBatch& batch, std::int64_t element_size,
                                  at::Device device, int ranks = 1);

// What an evaluation of `rows` tokens at once takes beside training's own memory.
std::int64_t evaluation_bytes(const config::RunConfig& config, std::int64_t rows, std::int64_t element_size);

}  // namespace lockstep::train
