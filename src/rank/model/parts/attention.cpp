// Attention through ATen's fused operators. Grouped heads are passed as they are where the operator knows them; where it does
// not, keys and values are repeated and rope_backward sums their gradients.
#include "rank/model/parts/attention.h"

#include <ATen/Context.h>
#include <ATen/ops/_efficient_attention_backward.h>
#include <ATen/ops/_efficient_attention_forward.h>
#include <ATen/ops/_flash_attention_backward.h>
#include <ATen/ops/_flash_attention_forward.h>
#include <ATen/ops/_scaled_dot_product_cudnn_attention.h>
#include <ATen/ops/_scaled_dot_product_cudnn_attention_backward.h>
#include <ATen/ops/_scaled_dot_product_efficient_attention.h>
#include <ATen/ops/_scaled_dot_product_efficient_attention_backward.h>
#include <ATen/ops/_scaled_dot_product_flash_attention.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_backward.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu_backward.h>
#include <ATen/ops/constant_pad_nd.h>

#include <cmath>

#include "base/ceil_div.h"
#include "rank/model/parts/head_rows.h"
#include "rank/model/parts/ragged.h"

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

at::Tensor one_record(const at::Tensor& rows, std::int64_t begin, std::int64_t end) {
  return rows.narrow(0, begin, end - begin).transpose(0, 1).unsqueeze(0);  // [1, heads, time, head_dim]
}
constexpr std::int64_t kCausalFromTopLeft = 1;  // what the efficient operator calls it

// No fused operator of a GPU takes heads of other sizes than 8, 16, ... (f32: 4, 8, ...): such are padded with zeros, which add nothing to
// a score and get no gradient. The scale stays that of the heads as they are.
constexpr std::int64_t kHeadStep = 8;
using Scale = std::optional<double>;  // nothing: the operator's own

bool needs_padding(const HeadViews& heads) { return heads.q.is_cuda() && heads.q.size(3) % kHeadStep != 0; }
Scale scale_of(const HeadViews& heads) { return needs_padding(heads) ? Scale(1 / std::sqrt(double(heads.q.size(3)))) : std::nullopt; }

at::Tensor padded(const at::Tensor& heads) {
  const auto size = heads.size(3);
  return at::constant_pad_nd(heads, {0, base::ceil_div(size, kHeadStep) * kHeadStep - size});
}
HeadViews padded(const HeadViews& heads) { return {padded(heads.q), padded(heads.k), padded(heads.v)}; }

AttentionKind packed_kind(const HeadViews& heads, Segments& segments, Scale scale) {
  const AttentionKind kind = attention_kind(heads.q);
  return kind == AttentionKind::cudnn && (scale || !has_ragged_attention(heads, segments)) ? AttentionKind::flash : kind;
}

// Records one after another in the rows: each sees itself alone.
void packed_forward(const HeadViews& heads, Segments& segments, AttentionSaved& saved, Scale scale) {
  saved.kind = packed_kind(heads, segments, scale);
  if (saved.kind == AttentionKind::cudnn) return ragged_forward(heads, segments, saved);
  const auto batch = heads.q.size(0);
  if (saved.kind == AttentionKind::flash) {
    const auto made =
        at::_flash_attention_forward(as_rows(heads.q), as_rows(heads.k), as_rows(heads.v), segments.on_device, segments.on_device,
                                     segments.longest, segments.longest, kNoDropout, kCausal, false, scale);
    saved = {saved.kind, as_batch(std::get<0>(made), batch), std::get<1>(made), std::get<2>(made), std::get<3>(made)};
    return;
  }
  const auto all = ungrouped(heads);
  const at::Tensor q = as_rows(all.q), k = as_rows(all.k), v = as_rows(all.v);
  if (saved.kind == AttentionKind::efficient) {
    const auto made = at::_efficient_attention_forward(q.unsqueeze(0), k.unsqueeze(0), v.unsqueeze(0), {}, segments.on_device,
                                                       segments.on_device, segments.longest, segments.longest, kNoDropout,
                                                       kCausalFromTopLeft, /*compute_log_sumexp=*/true, scale);
    saved = {saved.kind, as_batch(std::get<0>(made).squeeze(0), batch), std::get<1>(made), std::get<2>(made), std::get<3>(made)};
    return;
  }
  const at::Tensor out = at::empty(q.sizes(), q.options());
  saved.log_sums.clear();
  for (std::size_t i = 0; i + 1 < segments.starts.size(); ++i) {
    const auto begin = segments.starts[i], end = segments.starts[i + 1];
    const auto [mixed, log_sum] = at::_scaled_dot_product_flash_attention_for_cpu(one_record(q, begin, end), one_record(k, begin, end),
                                                                                  one_record(v, begin, end), kNoDropout, kCausal);
    one_record(out, begin, end).copy_(mixed);
    saved.log_sums.push_back(log_sum);
  }
  saved.out = as_batch(out, batch);
}

HeadGradients packed_backward(const at::Tensor& dout, const HeadViews& heads, Segments& segments, const AttentionSaved& saved,
                              Scale scale) {
  if (saved.kind == AttentionKind::cudnn) return ragged_backward(dout, heads, segments, saved);
  const auto batch = heads.q.size(0);
  if (saved.kind == AttentionKind::flash) {
    const auto [dq, dk, dv] = at::_flash_attention_backward(
        as_rows(dout), as_rows(heads.q), as_rows(heads.k), as_rows(heads.v), as_rows(saved.out), saved.log_sum, segments.on_device,
        segments.on_device, segments.longest, segments.longest, kNoDropout, kCausal, saved.seed, saved.offset, scale);
    return {as_batch(dq, batch), as_batch(dk, batch), as_batch(dv, batch)};
  }
  const auto all = ungrouped(heads);
  const at::Tensor q = as_rows(all.q), k = as_rows(all.k), v = as_rows(all.v), out = as_rows(saved.out), d = as_rows(dout);
  if (saved.kind == AttentionKind::efficient) {
    const auto made =
        at::_efficient_attention_backward(d.unsqueeze(0), q.unsqueeze(0), k.unsqueeze(0), v.unsqueeze(0), {}, out.unsqueeze(0),
                                          segments.on_device, segments.on_device, segments.longest, segments.longest, saved.log_sum,
                                          kNoDropout, saved.seed, saved.offset, kCausalFromTopLeft, /*bias_requires_grad=*/false, scale);
    return {as_batch(std::get<0>(made).squeeze(0), batch), as_batch(std::get<1>(made).squeeze(0), batch),
            as_batch(std::get<2>(made).squeeze(0), batch)};
  }
  const at::Tensor dq = at::empty(q.sizes(), q.options()), dk = at::empty(q.sizes(), q.options()), dv = at::empty(q.sizes(), q.options());
  for (std::size_t i = 0; i + 1 < segments.starts.size(); ++i) {
    const auto begin = segments.starts[i], end = segments.starts[i + 1];
    const auto part = [&](const at::Tensor& rows) { return one_record(rows, begin, end); };
    const auto [a, b, c] = at::_scaled_dot_product_flash_attention_for_cpu_backward(part(d), part(q), part(k), part(v), part(out),
                                                                                    saved.log_sums[i], kNoDropout, kCausal);
    part(dq).copy_(a);
    part(dk).copy_(b);
    part(dv).copy_(c);
  }
  return {as_batch(dq, batch), as_batch(dk, batch), as_batch(dv, batch)};
}

void batch_forward(const HeadViews& heads, AttentionSaved& saved, Sizes sizes, Scale scale) {
  const auto& q = heads.q;
  saved.kind = attention_kind(q);
  if (sizes == Sizes::vary && saved.kind == AttentionKind::cudnn) saved.kind = AttentionKind::flash;
  switch (saved.kind) {
    case AttentionKind::cpu_flash: {
      const auto all = ungrouped(heads);
      std::tie(saved.out, saved.log_sum) = at::_scaled_dot_product_flash_attention_for_cpu(q, all.k, all.v, kNoDropout, kCausal);
      break;
    }
    case AttentionKind::cudnn: {
      const auto made = at::_scaled_dot_product_cudnn_attention(q, heads.k, heads.v, {}, /*compute_log_sumexp=*/true, kNoDropout, kCausal,
                                                                /*return_debug_mask=*/false, scale);
      saved = {saved.kind, std::get<0>(made), std::get<1>(made), std::get<6>(made), std::get<7>(made)};
      break;
    }
    case AttentionKind::flash: {
      const auto made =
          at::_scaled_dot_product_flash_attention(q, heads.k, heads.v, kNoDropout, kCausal, /*return_debug_mask=*/false, scale);
      saved = {saved.kind, std::get<0>(made), std::get<1>(made), std::get<6>(made), std::get<7>(made)};
      break;
    }
    case AttentionKind::efficient: {
      const auto all = ungrouped(heads);
      const auto made =
          at::_scaled_dot_product_efficient_attention(q, all.k, all.v, {}, /*compute_log_sumexp=*/true, kNoDropout, kCausal, scale);
      saved = {saved.kind, std::get<0>(made), std::get<1>(made), std::get<2>(made), std::get<3>(made)};
      break;
    }
  }
}

HeadGradients batch_backward(const at::Tensor& d, const HeadViews& heads, const AttentionSaved& saved, Scale scale) {
  const auto& q = heads.q;
  const auto time = q.size(2);
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
          d, q, heads.k, heads.v, saved.out, saved.log_sum, saved.seed, saved.offset, {}, {}, {}, time, time, kNoDropout, kCausal, scale);
      break;
    case AttentionKind::flash:
      std::tie(g.dq, g.dk, g.dv) = at::_scaled_dot_product_flash_attention_backward(
          d, q, heads.k, heads.v, saved.out, saved.log_sum, {}, {}, time, time, kNoDropout, kCausal, saved.seed, saved.offset, scale);
      break;
    case AttentionKind::efficient: {
      const auto all = ungrouped(heads);
      at::Tensor no_bias;
      std::tie(g.dq, g.dk, g.dv, no_bias) =
          at::_scaled_dot_product_efficient_attention_backward(d, q, all.k, all.v, {}, saved.out, saved.log_sum, saved.seed, saved.offset,
                                                               kNoDropout, {true, true, true, false}, kCausal, scale);
      break;
    }
  }
  return g;
}

}  // namespace

AttentionKind attention_kind(const at::Tensor& q) {
  if (!q.is_cuda()) return AttentionKind::cpu_flash;
  const auto time = q.size(2), head_dim = q.size(3);
  if (q.scalar_type() == at::kFloat || head_dim % kHeadStep != 0 || head_dim > 256) return AttentionKind::efficient;
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

at::Tensor attention_forward(const HeadViews& given, Segments& segments, AttentionSaved& saved, Sizes sizes) {
  const HeadViews heads = needs_padding(given) ? padded(given) : given;
  segments.empty() ? batch_forward(heads, saved, sizes, scale_of(given)) : packed_forward(heads, segments, saved, scale_of(given));
  const auto& q = given.q;
  return saved.out.narrow(3, 0, q.size(3)).transpose(1, 2).reshape({q.size(0) * q.size(2), q.size(1) * q.size(3)});
}

HeadGradients attention_backward(const at::Tensor& dout, const HeadViews& given, Segments& segments, const AttentionSaved& saved) {
  const auto& q = given.q;
  const auto d = dout.view({q.size(0), q.size(2), q.size(1), q.size(3)}).transpose(1, 2);
  const auto backward = [&](const at::Tensor& d, const HeadViews& heads) {
    return segments.empty() ? batch_backward(d, heads, saved, scale_of(given))
                            : packed_backward(d, heads, segments, saved, scale_of(given));
  };
  if (!needs_padding(given)) return backward(d, given);
  const HeadGradients g = backward(padded(d), padded(given));
  const auto cut = [&](const at::Tensor& gradient) { return gradient.narrow(3, 0, q.size(3)).contiguous(); };
  return {cut(g.dq), cut(g.dk), cut(g.dv)};
}

}  // namespace lockstep::model
