// Sizes that follow from others, and what must hold between them.
#include "layout/dims.h"

#include "base/error.h"
#include "layout/family.h"

namespace lockstep::layout {

config::ModelConfig with_defaults(config::ModelConfig model) {
  if (model.kv_heads == 0) model.kv_heads = model.num_heads;
  if (model.head_dim == 0 && model.num_heads > 0) model.head_dim = model.hidden_size / model.num_heads;
  if (model.intermediate_size == 0) model.intermediate_size = (model.hidden_size * 8 / 3 + 63) / 64 * 64;
  if (model.family == config::Family::automatic) model.family = family_of_shape(model);
  return model;
}

Dims::Dims(const config::ModelConfig& given) {
  const config::ModelConfig c = with_defaults(given);
  hidden = c.hidden_size, layers = c.num_layers, heads = c.num_heads, kv_heads = c.kv_heads, head_dim = c.head_dim;
  intermediate = c.intermediate_size, vocab = c.vocab_size, max_time = c.max_seq_len;
  tied = c.tie_embeddings, qkv_bias = c.qkv_bias, qk_norm = c.qk_norm, norms_behind = norms_of(c) == Norms::behind;
  rope_theta = c.rope_theta, norm_eps = c.norm_eps, init_std = c.initializer_range;
}

void check_sizes(const config::ModelConfig& model) {
  const Dims d(model);
  const std::int64_t hidden = d.hidden, layers = d.layers, heads = d.heads, kv_heads = d.kv_heads, head_dim = d.head_dim;
  if (hidden < 1 || layers < 1 || heads < 1 || d.vocab < 1)
    throw base::usage_error("model", "hidden_size {}, num_layers {}, num_heads {} and vocab_size {} must all be at least 1.", hidden,
                            layers, heads, d.vocab);
  if (model.head_dim <= 0 && hidden % heads != 0)
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

}  // namespace lockstep::layout
