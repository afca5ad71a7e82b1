// Attention through ATen's fused operators. Grouped heads are passed as they are where the operator knows them; where it does
// not, keys and values are repeated and rope_backward sums their gradients.
#include "rank/model/attention.h"

#include <ATen/Context.h>
#include <ATen/ops/_scaled_dot_product_cudnn_attention.h>
#include <ATen/ops/_scaled_dot_product_cudnn_attention_backward.h>
#include <ATen/ops/_scaled_dot_product_efficient_attention.h>
#include <ATen/ops/_scaled_dot_product_efficient_attention_backward.h>
#include <ATen/ops/_scaled_dot_product_flash_attention.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_backward.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu_backward.h>

namespace lockstep::model {

namespace {

constexpr double kNoDropout = 0;
constexpr bool kCausal = true;

at::Tensor repeated(const at::Tensor& heads, std::int64_t times) {
  if (times == 1) return heads;
  const auto b = heads.size(0), k = heads.size(1), t = heads.size(2), d = heads.size(3);
  return heads.unsqueeze(2).expand({b, k, times, t, d}).reshape({b, k * times, t, d});
}

// The heads with a key-value head for every query head.
HeadViews ungrouped(const HeadViews& heads) {
  const auto groups = heads.q.size(1) / heads.k.size(1);
  return {heads.q, repeated(heads.k, groups), repeated(heads.v, groups)};
}

}  // namespace

AttentionKind attention_kind(const at::Tensor& q) {
  if (!q.is_cuda()) return AttentionKind::cpu_flash;
  const auto time = q.size(2), head_dim = q.size(3);
  if (q.scalar_type() == at::kFloat || head_dim % 8 != 0 || head_dim > 256) return AttentionKind::efficient;
  // cuDNN sums dq in no fixed order, takes heads up to 128, and no single query.
  if (at::globalContext().deterministicAlgorithms() || head_dim > 128 || time < 2) return AttentionKind::flash;
  return AttentionKind::cudnn;
}

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
  saved.kind = attention_kind(q);
  switch (saved.kind) {
    case AttentionKind::cpu_flash: {
      const auto all = ungrouped(heads);
      std::tie(saved.out, saved.log_sum) = at::_scaled_dot_product_flash_attention_for_cpu(q, all.k, all.v, kNoDropout, kCausal);
      break;
    }
    case AttentionKind::cudnn: {
      const auto made = at::_scaled_dot_product_cudnn_attention(q, heads.k, heads.v, {}, /*compute_log_sumexp=*/true, kNoDropout, kCausal);
      saved = {saved.kind, std::get<0>(made), std::get<1>(made), std::get<6>(made), std::get<7>(made)};
      break;
    }
    case AttentionKind::flash: {
      const auto made = at::_scaled_dot_product_flash_attention(q, heads.k, heads.v, kNoDropout, kCausal, /*return_debug_mask=*/false);
      saved = {saved.kind, std::get<0>(made), std::get<1>(made), std::get<6>(made), std::get<7>(made)};
      break;
    }
    case AttentionKind::efficient: {
      const auto all = ungrouped(heads);
      const auto made = at::_scaled_dot_product_efficient_attention(q, all.k, all.v, {}, /*compute_log_sumexp=*/true, kNoDropout, kCausal);
      saved = {saved.kind, std::get<0>(made), std::get<1>(made), std::get<2>(made), std::get<3>(made)};
      break;
    }
  }
  return saved.out.transpose(1, 2).reshape({q.size(0) * q.size(2), q.size(1) * q.size(3)});
}

HeadGradients attention_backward(const at::Tensor& dout, const HeadViews& heads, const AttentionSaved& saved) {
  const auto& q = heads.q;
  const auto time = q.size(2);
  const auto d = dout.view({q.size(0), time, q.size(1), q.size(3)}).transpose(1, 2);
  HeadGradients g;
  switch (saved.kind) {
    case AttentionKind::cpu_flash: {
      const auto all = ungrouped(heads);
      std::tie(g.dq, g.dk, g.dv) =
          at::_scaled_dot_product_flash_attention_for_cpu_backward(d, q, all.k, all.v, saved.out, saved.log_sum, kNoDropout, kCausal);
      break;
    }
    case AttentionKind::cudnn:
      std::tie(g.dq, g.dk, g.dv) = at::_scaled_dot_product_cudnn_attention_backward(
          d, q, heads.k, heads.v, saved.out, saved.log_sum, saved.seed, saved.offset, {}, {}, {}, time, time, kNoDropout, kCausal);
      break;
    case AttentionKind::flash:
      std::tie(g.dq, g.dk, g.dv) = at::_scaled_dot_product_flash_attention_backward(
          d, q, heads.k, heads.v, saved.out, saved.log_sum, {}, {}, time, time, kNoDropout, kCausal, saved.seed, saved.offset);
      break;
    case AttentionKind::efficient: {
      const auto all = ungrouped(heads);
      at::Tensor no_bias;
      std::tie(g.dq, g.dk, g.dv, no_bias) = at::_scaled_dot_product_efficient_attention_backward(
          d, q, all.k, all.v, {}, saved.out, saved.log_sum, saved.seed, saved.offset, kNoDropout, {true, true, true, false}, kCausal);
      break;
    }
  }
  return g;
}

}  // namespace lockstep::model
