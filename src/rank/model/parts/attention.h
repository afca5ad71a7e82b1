// Causal grouped-query attention over packed q, k, v.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "rank/model/layout.h"

namespace lockstep::model {

enum class AttentionKind {
  cpu_flash,
  cudnn,      // CUDA, 16-bit: on an H200 1.5 to 1.9 times flash
  flash,      // CUDA, 16-bit: where cuDNN cannot, or the same bits are wanted every time
  efficient,  // CUDA: f32, and heads of more than 256
};
AttentionKind attention_kind(const at::Tensor& q);  // [batch, heads, time, head_dim]

// Where packed records start in the rows of a batch: attention does not cross from one to the next. Empty: each row of tokens is one.
struct Segments {
  std::vector<std::int64_t> starts;  // [records + 1], the last is the number of rows
  at::Tensor on_device;              // the same as i32, on the device
  std::int64_t longest = 0;
  // What cuDNN wants to know of them, put together by the first layer that asks.
  struct Ragged {
    at::Tensor places;
    std::vector<std::int64_t> row_sizes;
  };
  Ragged ragged = {};
  bool* without_plan = nullptr;  // the model's memory of a shape that cuDNN has no plan for: it is not asked again
  bool empty() const { return starts.empty(); }
};

// What backward needs of a forward.
struct AttentionSaved {
  AttentionKind kind = AttentionKind::cpu_flash;
  at::Tensor out;                         // [batch, heads, time, head_dim], stored as [batch, time, heads, head_dim]
  at::Tensor log_sum;                     // per row of scores
  at::Tensor seed, offset;                // of a dropout that is off, but the CUDA operators ask for them
  std::vector<at::Tensor> log_sums = {};  // one a record, where records are packed on a CPU
};

// The heads as attention takes them: views [batch, heads, time, head_dim] into packed rows.
struct HeadViews {
  at::Tensor q, k, v;
};
// qk: [rows, at least (heads + kv_heads) x head_dim] rotated; qkv: where v stands (the same tensor unless heads are normed).
HeadViews head_views(const at::Tensor& qk, const at::Tensor& qkv, const Dims& dims, std::int64_t time);

// Whether the same sizes come again and again: cuDNN builds a plan for each, which one prompt is not worth.
enum class Sizes { recur, vary };
// Returns [rows, heads x head_dim], a view of saved.out unless that is padded.
at::Tensor attention_forward(const HeadViews& heads, Segments& segments, AttentionSaved& saved, Sizes sizes = Sizes::recur);

struct HeadGradients {
  at::Tensor dq;      // [batch, heads, time, head_dim]
  at::Tensor dk, dv;  // [batch, kv_heads, time, head_dim], or one a query head (kernels::rope_backward sums those)
};
// dout: [rows, heads x head_dim]
HeadGradients attention_backward(const at::Tensor& dout, const HeadViews& heads, Segments& segments, const AttentionSaved& saved);

}  // namespace lockstep::model
