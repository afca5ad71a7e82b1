// The one table of a model's shape.
#include "layout/shape.h"

#include "layout/family.h"

namespace lockstep::layout {

std::vector<ShapeKey> shape_of(const config::ModelConfig& m) {
  return {{"hidden_size", m.hidden_size},
          {"num_layers", m.num_layers},
          {"num_heads", m.num_heads},
          {"kv_heads", m.kv_heads},
          {"head_dim", m.head_dim},
          {"intermediate_size", m.intermediate_size},
          {"vocab_size", m.vocab_size},
          {"rope_theta", m.rope_theta},
          {"tie_embeddings", m.tie_embeddings},
          {"qkv_bias", m.qkv_bias},
          {"qk_norm", m.qk_norm},
          {"norm_eps", m.norm_eps},
          {"rope_scaling", m.rope_scaling},
          {"sliding_window", m.sliding_window},
          {"norms", std::string_view(norms_of(m) == Norms::behind ? "behind" : "before")}};
}

}  // namespace lockstep::layout
