// One function a layer, in the order of the published architecture; no fusion, no views into shared buffers.
#include "support/reference/reference_decoder.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Reduction.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/outer.h>
#include <ATen/ops/pow.h>
#include <ATen/ops/rsqrt.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <ATen/ops/silu.h>
#include <fmt/format.h>

namespace lockstep::reference {

namespace {

at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& weight, double eps) {
  const auto exact = x.to(at::kFloat);
  return (exact * at::rsqrt(exact.pow(2).mean(-1, /*keepdim=*/true) + eps) * weight.to(at::kFloat)).to(x.scalar_type());
}

// x: [batch, heads, time, head_dim]
at::Tensor rotate(const at::Tensor& x, double theta) {
  const auto time = x.size(2), dim = x.size(3);
  const auto options = x.options().dtype(at::kDouble).requires_grad(false);
  const auto frequencies = at::pow(at::full({}, theta, options), at::arange(0, dim, 2, options) * (-1.0 / double(dim)));
  const auto angles = at::outer(at::arange(0, time, options), frequencies);
  const auto both = at::cat({angles, angles}, -1);
  const auto exact = x.to(at::kFloat);
  const auto halves = exact.chunk(2, -1);
  const auto turned = at::cat({-halves[1], halves[0]}, -1);
  return (exact * both.cos().to(at::kFloat) + turned * both.sin().to(at::kFloat)).to(x.scalar_type());
}

struct Layer {
  const config::ModelConfig& config;
  const Parameters& parameters;
  std::string prefix;

  const at::Tensor& operator()(const std::string& name) const { return parameters.at(prefix + name); }

  at::Tensor heads_of(const at::Tensor& x, const std::string& projection, std::int64_t heads) const {
    const auto bias = config.qkv_bias ? std::optional<at::Tensor>((*this)("self_attn." + projection + "_proj.bias")) : std::nullopt;
    const auto flat = at::linear(x, (*this)("self_attn." + projection + "_proj.weight"), bias);
    return flat.view({x.size(0), x.size(1), heads, flat.size(2) / heads}).transpose(1, 2);
  }

  at::Tensor attention(const at::Tensor& x) const {
    const auto kv_heads = config.kv_heads > 0 ? config.kv_heads : config.num_heads;
    auto q = heads_of(x, "q", config.num_heads), k = heads_of(x, "k", kv_heads), v = heads_of(x, "v", kv_heads);
    if (config.qk_norm) {
      q = rms_norm(q, (*this)("self_attn.q_norm.weight"), config.norm_eps);
      k = rms_norm(k, (*this)("self_attn.k_norm.weight"), config.norm_eps);
    }
    q = rotate(q, config.rope_theta);
    k = rotate(k, config.rope_theta);
    const auto mixed = at::scaled_dot_product_attention(q, k, v, {}, 0.0, /*is_causal=*/true, std::nullopt, /*enable_gqa=*/true);
    return at::linear(mixed.transpose(1, 2).reshape({x.size(0), x.size(1), -1}), (*this)("self_attn.o_proj.weight"));
  }

  at::Tensor mlp(const at::Tensor& x) const {
    const auto gate = at::linear(x, (*this)("mlp.gate_proj.weight")), up = at::linear(x, (*this)("mlp.up_proj.weight"));
    return at::linear(at::silu(gate) * up, (*this)("mlp.down_proj.weight"));
  }

  at::Tensor operator()(const at::Tensor& x) const {
    const auto middle = x + attention(rms_norm(x, (*this)("input_layernorm.weight"), config.norm_eps));
    return middle + mlp(rms_norm(middle, (*this)("post_attention_layernorm.weight"), config.norm_eps));
  }
};

}  // namespace

Parameters copy_parameters(const std::vector<model::Unit*>& units, at::ScalarType dtype) {
  Parameters parameters;
  for (const auto* unit : units)
    for (const auto& [name, view] : unit->pieces_of(unit->weights()))
      parameters[name] = view.detach().to(dtype, /*non_blocking=*/false, /*copy=*/true).set_requires_grad(true);
  return parameters;
}

at::Tensor logits(const config::ModelConfig& config, const Parameters& parameters, const at::Tensor& tokens) {
  auto x = at::embedding(parameters.at("model.embed_tokens.weight"), tokens);
  for (std::int64_t i = 0; i < config.num_layers; ++i) x = Layer{config, parameters, fmt::format("model.layers.{}.", i)}(x);
  x = rms_norm(x, parameters.at("model.norm.weight"), config.norm_eps);
  return at::linear(x, parameters.at(config.tie_embeddings ? "model.embed_tokens.weight" : "lm_head.weight"));
}

at::Tensor loss_sum(const config::ModelConfig& config, const Parameters& parameters, const at::Tensor& tokens, const at::Tensor& targets) {
  const auto rows = logits(config, parameters, tokens).view({tokens.numel(), config.vocab_size}).to(at::kFloat);
  return at::cross_entropy_loss(rows, targets.reshape({-1}), {}, at::Reduction::Sum, -100);
}

}  // namespace lockstep::reference
