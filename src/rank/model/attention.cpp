// Attention through ATen's fused operators: flash on a CPU; cuDNN on CUDA in 16 bits, memory-efficient in f32.
#include "rank/model/attention.h"

#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu_backward.h>

namespace lockstep::model {

namespace {

// One key-value head a query head: the CPU operator knows no groups.
at::Tensor repeated(const at::Tensor& heads, std::int64_t times) {
  if (times == 1) return heads;
  const auto b = heads.size(0), k = heads.size(1), t = heads.size(2), d = heads.size(3);
  return heads.unsqueeze(2).expand({b, k, times, t, d}).reshape({b, k * times, t, d});
}

}  // namespace

HeadViews head_views(const at::Tensor& qk, const at::Tensor& qkv, const Dims& dims, std::int64_t time) {
  const auto batch = qk.size(0) / time;
  const auto view = [&](const at::Tensor& packed, std::int64_t column, std::int64_t heads) {
    const auto row = packed.stride(0);
    return packed.as_strided({batch, heads, time, dims.head_dim}, {time * row, dims.head_dim, row, 1}, packed.storage_offset() + column);
  };
  return {view(qk, 0, dims.heads), view(qk, dims.q_width(), dims.kv_heads), view(qkv, dims.q_width() + dims.kv_width(), dims.kv_heads)};
}

at::Tensor attention_forward(const HeadViews& heads, AttentionSaved& saved) {
  const auto& q = heads.q;
  const auto groups = q.size(1) / heads.k.size(1);
  std::tie(saved.out, saved.log_sum) =
      at::_scaled_dot_product_flash_attention_for_cpu(q, repeated(heads.k, groups), repeated(heads.v, groups), 0.0, true);
  return saved.out.transpose(1, 2).reshape({q.size(0) * q.size(2), q.size(1) * q.size(3)});
}

HeadGradients attention_backward(const at::Tensor& dout, const HeadViews& heads, const AttentionSaved& saved) {
  const auto& q = heads.q;
  const auto groups = q.size(1) / heads.k.size(1);
  const auto dout_heads = dout.view({q.size(0), q.size(2), q.size(1), q.size(3)}).transpose(1, 2);
  HeadGradients g;
  std::tie(g.dq, g.dk, g.dv) = at::_scaled_dot_product_flash_attention_for_cpu_backward(
      dout_heads, q, repeated(heads.k, groups), repeated(heads.v, groups), saved.out, saved.log_sum, 0.0, true);
  return g;
}

}  // namespace lockstep::model
