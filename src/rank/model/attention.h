// Causal grouped-query attention over packed q, k, v.
#pragma once

#include <ATen/core/Tensor.h>

#include "rank/model/dims.h"

namespace lockstep::model {

enum class AttentionKind {
  cpu_flash,
  cudnn,      // CUDA, 16-bit: on an H200 1.5 to 1.9 times flash
  flash,      // CUDA, 16-bit: where cuDNN cannot, or the same bits are wanted every time
  efficient,  // CUDA: f32, and head sizes that the others do not take
};
AttentionKind attention_kind(const at::Tensor& q);  // [batch, heads, time, head_dim]

// What backward needs of a forward.
struct AttentionSaved {
  AttentionKind kind = AttentionKind::cpu_flash;
  at::Tensor out;           // [batch, heads, time, head_dim], stored as [batch, time, heads, head_dim]
  at::Tensor log_sum;       // per row of scores
  at::Tensor seed, offset;  // of a dropout that is off, but the CUDA operators ask for them
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
