// Which parameters a decoder has, in Hugging Face's names, and what each starts as.
#include <fmt/format.h>

#include "base/error.h"
#include "base/text.h"
#include "rank/model/dims.h"
#include "rank/model/model.h"

namespace lockstep::model {

at::ScalarType scalar_type(config::DType dtype) {
  switch (dtype) {
    case config::DType::f32: return at::kFloat;
    case config::DType::f16: return at::kHalf;
    case config::DType::bf16: return at::kBFloat16;
  }
  throw base::Bug("a dtype that has no name");
}

Dims::Dims(const config::ModelConfig& c)
    : hidden(c.hidden_size),
      layers(c.num_layers),
      heads(c.num_heads),
      kv_heads(c.kv_heads > 0 ? c.kv_heads : c.num_heads),
      head_dim(c.head_dim > 0 ? c.head_dim : (c.num_heads > 0 ? c.hidden_size / c.num_heads : 0)),
      intermediate(c.intermediate_size > 0 ? c.intermediate_size : (c.hidden_size * 8 / 3 + 63) / 64 * 64),
      vocab(c.vocab_size),
      max_time(c.max_seq_len),
      tied(c.tie_embeddings),
      qkv_bias(c.qkv_bias),
      qk_norm(c.qk_norm),
      rope_theta(c.rope_theta),
      norm_eps(c.norm_eps),
      init_std(c.initializer_range) {
  if (hidden < 1 || layers < 1 || heads < 1 || vocab < 1)
    throw base::usage_error("model", "hidden_size {}, num_layers {}, num_heads {} and vocab_size {} must all be at least 1.", hidden,
                            layers, heads, vocab);
  if (c.head_dim <= 0 && hidden % heads != 0)
    throw base::usage_error(
        "model", "hidden_size {} does not divide by num_heads {}. Choose num_heads that divides it, or set model.head_dim.", hidden, heads);
  if (heads % kv_heads != 0)
    throw base::usage_error("model", "num_heads {} does not divide by kv_heads {}: each key-value head serves the same number of heads.",
                            heads, kv_heads);
  if (head_dim % 2 != 0)
    throw base::usage_error("model", "head_dim {} is odd; rotary embeddings rotate pairs, so it must be even.", head_dim);
}

BlockLeaves::BlockLeaves(const Dims& dims) {
  std::size_t next = post_norm + 1;
  if (dims.qkv_bias) bias = next++;
  if (dims.qk_norm) {
    q_norm = next++;
    k_norm = next++;
  }
}

namespace {

LeafSpec matrix(std::string name, std::vector<Piece> pieces, double std, Role role = Role::inner) {
  return {.name = std::move(name), .pieces = std::move(pieces), .init = Init::normal, .init_std = std, .decay = true, .role = role};
}

LeafSpec vector(std::string name, std::vector<Piece> pieces, Init init) {
  return {.name = std::move(name), .pieces = std::move(pieces), .init = init, .init_std = 0, .decay = false};
}

UnitSpec block_unit(const Dims& d, std::int64_t layer) {
  const auto named = [&](std::string_view rest) { return fmt::format("model.layers.{}.{}", layer, rest); };
  UnitSpec unit{.name = fmt::format("block {}", layer), .leaves = {}};
  unit.leaves.push_back(matrix("qkv_proj.weight",
                               {{named("self_attn.q_proj.weight"), {d.q_width(), d.hidden}},
                                {named("self_attn.k_proj.weight"), {d.kv_width(), d.hidden}},
                                {named("self_attn.v_proj.weight"), {d.kv_width(), d.hidden}}},
                               d.init_std));
  unit.leaves.push_back(matrix("o_proj.weight", {{named("self_attn.o_proj.weight"), {d.hidden, d.q_width()}}}, d.init_std));
  unit.leaves.push_back(
      matrix("gate_up_proj.weight",
             {{named("mlp.gate_proj.weight"), {d.intermediate, d.hidden}}, {named("mlp.up_proj.weight"), {d.intermediate, d.hidden}}},
             d.init_std));
  unit.leaves.push_back(matrix("down_proj.weight", {{named("mlp.down_proj.weight"), {d.hidden, d.intermediate}}}, d.init_std));
  unit.leaves.push_back(vector("input_layernorm.weight", {{named("input_layernorm.weight"), {d.hidden}}}, Init::ones));
  unit.leaves.push_back(vector("post_attention_layernorm.weight", {{named("post_attention_layernorm.weight"), {d.hidden}}}, Init::ones));
  if (d.qkv_bias)
    unit.leaves.push_back(vector("qkv_proj.bias",
                                 {{named("self_attn.q_proj.bias"), {d.q_width()}},
                                  {named("self_attn.k_proj.bias"), {d.kv_width()}},
                                  {named("self_attn.v_proj.bias"), {d.kv_width()}}},
                                 Init::zeros));
  if (d.qk_norm) {
    unit.leaves.push_back(vector("q_norm.weight", {{named("self_attn.q_norm.weight"), {d.head_dim}}}, Init::ones));
    unit.leaves.push_back(vector("k_norm.weight", {{named("self_attn.k_norm.weight"), {d.head_dim}}}, Init::ones));
  }
  return unit;
}

}  // namespace

std::vector<UnitSpec> decoder_units(const config::ModelConfig& config) {
  const Dims d(config);
  std::vector<UnitSpec> units;
  units.push_back(
      {.name = "embedding",
       .leaves = {matrix("embed_tokens.weight", {{"model.embed_tokens.weight", {d.vocab, d.hidden}}}, d.init_std, Role::token_embedding)}});
  for (std::int64_t layer = 0; layer < d.layers; ++layer) units.push_back(block_unit(d, layer));
  UnitSpec head{.name = "head", .leaves = {}};
  if (!d.tied) head.leaves.push_back(matrix("lm_head.weight", {{"lm_head.weight", {d.vocab, d.hidden}}}, d.init_std, Role::output_head));
  head.leaves.push_back(vector("norm.weight", {{"model.norm.weight", {d.hidden}}}, Init::ones));
  units.push_back(std::move(head));
  return units;
}

}  // namespace lockstep::model
