// Attention of new queries over everything seen before.
#include "rank/model/parts/key_values.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/_scaled_dot_product_flash_attention.h>
#include <ATen/ops/baddbmm.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace lockstep::model {

namespace {

constexpr std::int64_t kScoreElements = std::int64_t(1) << 26;  // of one pass over queries: long prompts go in pieces

// q: [batch, heads, time, head_dim]; keys, values: [batch, kv_heads, span, head_dim]. Query heads of a group are rows of one product, so
// that keys and values are read once and never repeated.
at::Tensor grouped_attention(const at::Tensor& q, const at::Tensor& keys, const at::Tensor& values, const at::Tensor& unseen) {
  const auto batch = q.size(0), heads = q.size(1), time = q.size(2), width = q.size(3);
  const auto kv_heads = keys.size(1), span = keys.size(2), groups = heads / kv_heads;
  const at::Tensor rows = q.reshape({batch * kv_heads, groups * time, width});
  const at::Tensor k = keys.reshape({batch * kv_heads, span, width}), v = values.reshape({batch * kv_heads, span, width});
  const at::Tensor nothing = at::empty({1}, q.options());
  at::Tensor scores = at::baddbmm(nothing, rows, k.transpose(1, 2), /*beta=*/0, /*alpha=*/1 / std::sqrt(double(width)));
  scores = scores.view({batch, kv_heads, groups, time, span});
  if (unseen.defined()) scores.masked_fill_(unseen.view({batch, 1, 1, time, span}), -std::numeric_limits<float>::infinity());
  const at::Tensor shares = scores.softmax(-1, at::kFloat).to(q.scalar_type()).view({batch * kv_heads, groups * time, span});
  return at::bmm(shares, v).view({batch, heads, time, width}).transpose(1, 2);  // [batch, time, heads, head_dim]
}

}  // namespace

KeyValues::KeyValues(const Dims& dims, std::int64_t batch, const at::TensorOptions& options)
    : keys_(at::empty({batch, dims.kv_heads, 0, dims.head_dim}, options)), values_(keys_) {}

void KeyValues::reserve(std::int64_t room, std::int64_t used) {
  for (at::Tensor* cache : {&keys_, &values_}) {
    // Zeros, since a share of 0 times a number that is not finite would spoil the sum.
    const at::Tensor larger = at::zeros({cache->size(0), cache->size(1), room, cache->size(3)}, cache->options());
    larger.narrow(2, 0, used).copy_(cache->narrow(2, 0, used));
    *cache = larger;
  }
}

void KeyValues::keep(const at::Tensor& rows) {
  for (at::Tensor* cache : {&keys_, &values_}) *cache = cache->index_select(0, rows);
}

void KeyValues::store(const at::Tensor& cache, const at::Tensor& fresh, const DecodeStep& step) {
  if (step.slots.defined()) {
    cache.scatter_(2, step.slots.expand(fresh.sizes()), fresh);
  } else {
    cache.narrow(2, step.first, step.time).copy_(fresh);
  }
}

at::Tensor KeyValues::attend(const HeadViews& heads, const DecodeStep& step) {
  store(keys_, heads.k, step);
  store(values_, heads.v, step);
  // Behind a shorter sequence stands only what fills it up, and nothing earlier looks there.
  if (step.fresh && step.time > 1) {
    Segments none;
    return attention_forward(heads, none, saved_, Sizes::vary);
  }
  const at::Tensor k = keys_.narrow(2, 0, step.span), v = values_.narrow(2, 0, step.span);
  const auto rows = heads.q.size(0) * step.time, width = heads.q.size(1) * heads.q.size(3);
  // One query that sees everything: flash does it in one kernel, the keys spread over the device.
  if (!step.unseen.defined() && attention_kind(heads.q) == AttentionKind::flash) {
    const auto made = at::_scaled_dot_product_flash_attention(heads.q, k, v, /*dropout_p=*/0, /*is_causal=*/false, false);
    return std::get<0>(made).transpose(1, 2).reshape({rows, width});
  }
  const auto piece = std::max<std::int64_t>(1, kScoreElements / (heads.q.size(0) * heads.q.size(1) * step.span));
  if (piece >= step.time) return grouped_attention(heads.q, k, v, step.unseen).reshape({rows, width});
  const at::Tensor out = at::empty({heads.q.size(0), step.time, heads.q.size(1), heads.q.size(3)}, heads.q.options());
  for (std::int64_t from = 0; from < step.time; from += piece) {
    const auto count = std::min(piece, step.time - from);
    const at::Tensor unseen = step.unseen.defined() ? step.unseen.narrow(1, from, count) : at::Tensor();
    out.narrow(1, from, count).copy_(grouped_attention(heads.q.narrow(2, from, count), k, v, unseen));
  }
  return out.view({rows, width});
}

}  // namespace lockstep::model
