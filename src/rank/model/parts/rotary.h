// Rotary frequencies of a model, stretched as its config says.
#pragma once

#include <ATen/core/Tensor.h>

#include "config/run_config.h"

namespace lockstep::model {

// [head_dim / 2] f32 on the CPU, rounded at every step as transformers rounds, so that long positions agree with it too.
at::Tensor inverse_frequencies(std::int64_t head_dim, double theta, const config::RopeScalingConfig& scaling = {});

}  // namespace lockstep::model
