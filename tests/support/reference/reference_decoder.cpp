// One function a layer, in the order of the published architecture; no fusion, no views into shared buffers.
#include "support/reference/reference_decoder.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Reduction.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
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

// Forward sees f(x), backward goes through as if x had been left alone, its gradient becoming back(gradient).
template <typename F, typename B>
at::Tensor rounded(const at::Tensor& x, F f, B back) {
  const auto result = f(x.detach()) + (x - x.detach());  // the difference is 0, and carries the gradient
  if (result.requires_grad()) result.register_hook([back](const at::Tensor& gradient) { return back(gradient); });
  return result;
}

at::Tensor to_8_bits(const at::Tensor& x, at::ScalarType type, double largest) {
  const auto most = x.abs().max().item<float>();
  const float multiply = most > 0 ? float(largest) / most : 1.0f;
  return (x * multiply).clamp(-largest, largest).to(type).to(at::kFloat) * (1.0f / multiply);
}

struct Layer {
  const config::ModelConfig& config;
  const Parameters& parameters;
  std::string prefix;
  const Arithmetic& math;

  const at::Tensor& operator()(const std::string& name) const { return parameters.at(prefix + name); }

  at::Tensor normed(const at::Tensor& x, const std::string& name) const { return math.store(rms_norm(x, (*this)(name), config.norm_eps)); }

  // The heads of q, k or v out of what one product made of all three.
  at::Tensor heads_of(const at::Tensor& flat, std::int64_t first, std::int64_t heads, std::int64_t head_dim) const {
    return flat.narrow(2, first, heads * head_dim).view({flat.size(0), flat.size(1), heads, head_dim}).transpose(1, 2);
  }

  at::Tensor attention(const at::Tensor& x) const {
    const auto kv_heads = config.kv_heads > 0 ? config.kv_heads : config.num_heads;
    const auto all = [&](const std::string& kind) {
      return at::cat({(*this)("self_attn.q_proj." + kind), (*this)("self_attn.k_proj." + kind), (*this)("self_attn.v_proj." + kind)});
    };
    const auto weight = all("weight");
    const auto head_dim = weight.size(0) / (config.num_heads + 2 * kv_heads), q_width = config.num_heads * head_dim;
    auto flat = math.product(x, weight);
    if (config.qkv_bias) flat = flat + all("bias");
    flat = math.store(flat);
    auto q = heads_of(flat, 0, config.num_heads, head_dim), k = heads_of(flat, q_width, kv_heads, head_dim);
    const auto v = heads_of(flat, q_width + kv_heads * head_dim, kv_heads, head_dim);
    if (config.qk_norm) {
      q = rms_norm(q, (*this)("self_attn.q_norm.weight"), config.norm_eps);
      k = rms_norm(k, (*this)("self_attn.k_norm.weight"), config.norm_eps);
    }
    q = math.store(rotate(q, config.rope_theta));
    k = math.store(rotate(k, config.rope_theta));
    const auto mixed = at::scaled_dot_product_attention(q, k, v, {}, 0.0, /*is_causal=*/true, std::nullopt, /*enable_gqa=*/true);
    return math.store(
        math.product(math.store(mixed.transpose(1, 2).reshape({x.size(0), x.size(1), -1})), (*this)("self_attn.o_proj.weight")));
  }

  at::Tensor mlp(const at::Tensor& x) const {
    const auto both = math.store(math.product(x, at::cat({(*this)("mlp.gate_proj.weight"), (*this)("mlp.up_proj.weight")})));
    const auto halves = both.chunk(2, -1);
    return math.store(math.product(math.store(at::silu(halves[0]) * halves[1]), (*this)("mlp.down_proj.weight")));
  }

  at::Tensor operator()(const at::Tensor& x) const {
    const auto middle = math.store(x + attention(normed(x, "input_layernorm.weight")));
    return math.store(middle + mlp(normed(middle, "post_attention_layernorm.weight")));
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

Arithmetic plain() {
  return {.product = [](const at::Tensor& x, const at::Tensor& weight) { return at::linear(x, weight); },
          .store = [](const at::Tensor& x) { return x; }};
}

Arithmetic with_8_bit_products() {
  const auto e4m3 = [](const at::Tensor& x) { return to_8_bits(x, at::kFloat8_e4m3fn, 448); };
  const auto e5m2 = [](const at::Tensor& x) { return to_8_bits(x, at::kFloat8_e5m2, 57344); };
  const auto bf16 = [](const at::Tensor& x) { return x.to(at::kBFloat16).to(at::kFloat); };
  const auto same = [](const at::Tensor& x) { return x; };
  return {.product =
              [=](const at::Tensor& x, const at::Tensor& weight) {
                const auto product = at::linear(rounded(x, e4m3, same), rounded(weight, e4m3, same));
                return rounded(product, same, e5m2);
              },
          .store = [=](const at::Tensor& x) { return rounded(x, bf16, bf16); }};
}

at::Tensor logits(const config::ModelConfig& config, const Parameters& parameters, const at::Tensor& tokens, const Arithmetic& arithmetic) {
  auto x = at::embedding(parameters.at("model.embed_tokens.weight"), tokens);
  for (std::int64_t i = 0; i < config.num_layers; ++i) x = Layer{config, parameters, fmt::format("model.layers.{}.", i), arithmetic}(x);
  x = arithmetic.store(rms_norm(x, parameters.at("model.norm.weight"), config.norm_eps));
  return arithmetic.store(at::linear(x, parameters.at(config.tie_embeddings ? "model.embed_tokens.weight" : "lm_head.weight")));
}

at::Tensor loss_sum(const config::ModelConfig& config, const Parameters& parameters, const at::Tensor& tokens, const at::Tensor& targets,
                    const Arithmetic& arithmetic) {
  const auto rows = logits(config, parameters, tokens, arithmetic).view({tokens.numel(), config.vocab_size}).to(at::kFloat);
  return at::cross_entropy_loss(rows, targets.reshape({-1}), {}, at::Reduction::Sum, -100);
}

}  // namespace lockstep::reference
