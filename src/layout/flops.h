// Floating-point operations of training: the numerator of MFU.
#pragma once

#include <cstdint>

#include "config/run_config.h"

namespace lockstep::layout {

// Of one token, forward and backward; work done again to save memory does not count. A matrix that is trained costs 6 a weight: forward,
// the gradient of its input, its own gradient. A frozen one costs 4: nobody computes its gradient.
struct Flops {
  double projections = 0;  // the matrices of blocks: what trainer.fp8 multiplies in 8 bits
  double others = 0;       // head, attention, adapters

  double total() const { return projections + others; }
};

// seq_len: positions of a causal sample, for attention's scores; 0 leaves attention out, where samples are records of many lengths.
Flops flops_per_token(const config::ModelConfig& model, const config::LoraConfig& lora, std::int64_t seq_len);

}  // namespace lockstep::layout
