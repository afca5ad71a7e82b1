// Causal grouped-query attention over packed q, k, v.
#pragma once

#include <ATen/core/Tensor.h>

#include "rank/model/dims.h"

namespace lockstep::model {

// What backward needs of a forward.
struct AttentionSaved {
  at::Tensor out;                   // [batch, heads, time, head_dim], stored as [batch, time, heads, head_dim]
  at::Tensor log_sum;               // per row of scores
  at::Tensor seed, offset;          // CUDA: of a dropout that is off, but the operators ask for them
  bool cudnn = false;
};

// The heads as attention takes them: views [batch, heads, time, head_dim] into packed rows.
struct HeadViews {
  at::Tensor q, k, v;
};
// qk: [rows, at least (heads + kv_heads) x head_dim] rotated; qkv: where v stands (the same tensor unless heads are normed).
HeadViews head_views(const at::Tensor& qk, const at::Tensor& qkv, const Dims& dims, std::int64_t time);

// Returns [rows, heads x head_dim], a view of saved.out.
at::Tensor attention_forward(const HeadViews& heads, AttentionSaved& saved);

struct HeadGradients {
  at::Tensor dq;      // [batch, heads, time, head_dim]
  at::Tensor dk, dv;  // [batch, kv_heads, time, head_dim], or one a query head (kernels::rope_backward sums those)
};
// dout: [rows, heads x head_dim]
HeadGradients attention_backward(const at::Tensor& dout, const HeadViews& heads, const AttentionSaved& saved);

}  // namespace lockstep::model
