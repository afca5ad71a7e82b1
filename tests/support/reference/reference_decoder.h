// The decoder written plainly in ATen with autograd: what the hand-written forward and backward are compared with.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "config/run_config.h"
#include "rank/model/weights/unit.h"

namespace lockstep::reference {

// Parameters by their Hugging Face names, each a leaf of autograd.
using Parameters = std::map<std::string, at::Tensor>;

// Copies (f32 unless told) of the units' weights that require gradients.
Parameters copy_parameters(const std::vector<model::Unit*>& units, at::ScalarType dtype = at::kFloat);

// How blocks compute where that is not plain: products of x [.., in] and weight [out, in] (q, k and v are one matrix, gate and up are one),
// and what becomes of every number that is stored between two operations.
struct Arithmetic {
  std::function<at::Tensor(const at::Tensor& x, const at::Tensor& weight)> product;
  std::function<at::Tensor(const at::Tensor& x)> store;
};
Arithmetic plain();
// As training with trainer.fp8 has it: factors rounded to e4m3, gradients of products to e5m2, each tensor by its largest magnitude; stored
// numbers and their gradients rounded to bf16. Everything else is f32.
Arithmetic with_8_bit_products();

// [batch, time, vocab]; builds a graph where gradients are enabled.
at::Tensor logits(const config::ModelConfig& config, const Parameters& parameters, const at::Tensor& tokens,
                  const Arithmetic& arithmetic = plain());
// Summed cross-entropy over targets that are not -100: scalar.
at::Tensor loss_sum(const config::ModelConfig& config, const Parameters& parameters, const at::Tensor& tokens, const at::Tensor& targets,
                    const Arithmetic& arithmetic = plain());

}  // namespace lockstep::reference
