// The decoder written plainly in ATen with autograd: what the hand-written forward and backward are compared with.
#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <string>
#include <vector>

#include "config/run_config.h"
#include "rank/model/unit.h"

namespace lockstep::reference {

// Parameters by their Hugging Face names, each a leaf of autograd.
using Parameters = std::map<std::string, at::Tensor>;

// Copies (f32 unless told) of the units' weights that require gradients.
Parameters copy_parameters(const std::vector<model::Unit*>& units, at::ScalarType dtype = at::kFloat);

// [batch, time, vocab]; builds a graph where gradients are enabled.
at::Tensor logits(const config::ModelConfig& config, const Parameters& parameters, const at::Tensor& tokens);
// Summed cross-entropy over targets that are not -100: scalar.
at::Tensor loss_sum(const config::ModelConfig& config, const Parameters& parameters, const at::Tensor& tokens, const at::Tensor& targets);

}  // namespace lockstep::reference
