// The decoder's sizes with every default resolved, and where each parameter stands in its unit.
#pragma once

#include <cstdint>

#include "config/run_config.h"

namespace lockstep::layout {

// Fills in what may be left out of a model's shape: family, kv_heads, head_dim, intermediate_size. Idempotent.
config::ModelConfig with_defaults(config::ModelConfig model);

struct Dims {
  std::int64_t hidden, layers, heads, kv_heads, head_dim, intermediate, vocab, max_time;
  bool tied, qkv_bias, qk_norm;
  bool norms_behind;  // its branches; then norms of q and k are over all heads at once
  double rope_theta, norm_eps, init_std;

  explicit Dims(const config::ModelConfig& config);
  std::int64_t q_width() const { return heads * head_dim; }
  std::int64_t kv_width() const { return kv_heads * head_dim; }
  std::int64_t qkv_width() const { return q_width() + 2 * kv_width(); }
  std::int64_t q_norm_width() const { return norms_behind ? q_width() : head_dim; }
  std::int64_t k_norm_width() const { return norms_behind ? kv_width() : head_dim; }
};
// UserError where a model's sizes do not go together.
void check_sizes(const config::ModelConfig& model);

// Positions of leaves in their units. Leaves of a block that a model does not have (bias, head norms) are left out, so the
// optional ones come last and are looked up through BlockLeaves.
inline constexpr std::size_t kEmbeddingWeight = 0;

struct BlockLeaves {
  static constexpr std::size_t qkv = 0, out = 1, gate_up = 2, down = 3, input_norm = 4,
                               post_norm = 5;    // norms: of the first branch, of the second
  std::size_t bias = 0, q_norm = 0, k_norm = 0;  // 0: not there
  explicit BlockLeaves(const Dims& dims);
};

struct HeadLeaves {
  std::size_t norm = 0;
  static constexpr std::size_t weight = 0;  // only where embeddings are not tied
  explicit HeadLeaves(const Dims& dims) : norm(dims.tied ? 0 : 1) {}
};

}  // namespace lockstep::layout
