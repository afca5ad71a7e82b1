// From logits to the next token: penalties, temperature, the candidates that stay, and a draw. In transformers' terms and order.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>

namespace lockstep::task {

struct Sampling {
  double temperature = 0.7;       // 0: always the likeliest token
  std::int64_t top_k = 0;         // 0: all
  double top_p = 1;               // the likeliest tokens that together hold this share stay
  double min_p = 0;               // tokens at least this likely, relative to the likeliest, stay
  double repetition_penalty = 1;  // above 1: tokens that were seen become less likely
  std::int64_t seed = 0;
};

// Scores [batch, vocab] f32 after the repetition penalty; seen: [batch, vocab] bool.
at::Tensor penalize(const at::Tensor& scores, const at::Tensor& seen, double penalty);
// Temperature, top-k, top-p, min-p, in this order; what is left out becomes -infinity. Temperature is not 0.
at::Tensor warp(const at::Tensor& scores, const Sampling& sampling);
// A token a row [batch] i64 on the device: the likeliest where temperature is 0, else by draws [batch], f64 in [0, 1) on the host.
at::Tensor choose(const at::Tensor& scores, const Sampling& sampling, std::span<const double> draws);

// In [0, 1), a pure function of these: a text does not depend on what else is in its batch, nor on the rank that writes it.
double uniform_draw(std::int64_t seed, std::uint64_t text, std::int64_t position);

}  // namespace lockstep::task
