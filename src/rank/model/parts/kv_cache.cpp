// The cache's bookkeeping, and attention of new queries over everything seen before.
#include "rank/model/parts/kv_cache.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/_scaled_dot_product_flash_attention.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/baddbmm.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/error.h"
#include "layout/memory.h"

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

KvCache::KvCache(const Dims& dims, std::int64_t window, std::int64_t batch, const at::TensorOptions& options)
    : window_(window), limit_(dims.max_time), lengths_(std::size_t(batch)), seen_(at::zeros({batch}, options.dtype(at::kLong))) {
  for (std::int64_t i = 0; i < dims.layers; ++i) {
    keys_.push_back(at::empty({batch, dims.kv_heads, 0, dims.head_dim}, options));
    values_.push_back(keys_.back());
  }
}

void KvCache::reserve(std::int64_t tokens) {
  if (tokens <= capacity()) return;
  const auto room = layout::round_up(tokens, layout::kv_cache_step);
  const auto used = std::min(capacity(), lengths_.empty() ? 0 : *std::max_element(lengths_.begin(), lengths_.end()));
  for (auto* caches : {&keys_, &values_}) {
    for (at::Tensor& cache : *caches) {
      // Zeros, since a share of 0 times a number that is not finite would spoil the sum.
      const at::Tensor larger = at::zeros({cache.size(0), cache.size(1), room, cache.size(3)}, cache.options());
      larger.narrow(2, 0, used).copy_(cache.narrow(2, 0, used));
      cache = larger;
    }
  }
}

void KvCache::cut(std::int64_t row, std::int64_t length) {
  auto& now = lengths_.at(std::size_t(row));
  base::check(length <= now, "a cache is cut to what it has seen, not to more");
  now = length;
  seen_.select(0, row).fill_(length);
}

void KvCache::keep(std::span<const std::int64_t> rows) {
  const at::Tensor chosen = at::tensor(at::ArrayRef<std::int64_t>(rows.data(), rows.size()), at::kLong).to(seen_.device());
  for (auto* caches : {&keys_, &values_})
    for (at::Tensor& cache : *caches) cache = cache.index_select(0, chosen);
  seen_ = seen_.index_select(0, chosen);
  std::vector<std::int64_t> lengths;
  for (const auto row : rows) lengths.push_back(lengths_.at(std::size_t(row)));
  lengths_ = std::move(lengths);
}

KvCache::Step KvCache::begin(std::int64_t time) {
  const auto [least, most] = std::minmax_element(lengths_.begin(), lengths_.end());
  Step step{.time = time, .span = *most + time, .first = *least, .fresh = *most == 0};
  // Half as much again, so that growing costs little a token; never far beyond what the model can read.
  if (step.span > capacity()) reserve(std::max(step.span, std::min(capacity() * 3 / 2, limit_)));
  const auto longs = seen_.options();
  const at::Tensor positions = seen_.unsqueeze(1) + at::arange(time, longs);  // [batch, time]
  step.positions = positions.to(at::kInt).reshape({-1});
  const bool level = *least == *most, windowed = window_ > 0 && step.span > window_;
  if (!level) step.slots = positions.view({batch(), 1, time, 1});
  if (windowed) step.fresh = false;
  if (step.fresh || (level && time == 1 && !windowed)) return step;
  const at::Tensor keys = at::arange(step.span, longs).view({1, 1, -1}), queries = positions.unsqueeze(2);
  step.unseen = keys > queries;
  if (windowed) step.unseen.logical_or_(keys <= queries - window_);
  return step;
}

void KvCache::store(at::Tensor& cache, const at::Tensor& fresh, const Step& step) const {
  if (step.slots.defined()) {
    cache.scatter_(2, step.slots.expand(fresh.sizes()), fresh);
  } else {
    cache.narrow(2, step.first, step.time).copy_(fresh);
  }
}

at::Tensor KvCache::attend(std::size_t layer, const HeadViews& heads, const Step& step) {
  store(keys_.at(layer), heads.k, step);
  store(values_.at(layer), heads.v, step);
  // Behind a shorter sequence stands only what fills it up, and nothing earlier looks there.
  if (step.fresh && step.time > 1) {
    Segments none;
    return attention_forward(heads, none, saved_, Sizes::vary);
  }
  const at::Tensor k = keys_[layer].narrow(2, 0, step.span), v = values_[layer].narrow(2, 0, step.span);
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

void KvCache::finish(const Step& step, std::span<const std::int64_t> counts) {
  if (counts.empty()) {
    for (auto& length : lengths_) length += step.time;
    seen_.add_(step.time);
    return;
  }
  base::check(counts.size() == lengths_.size(), "every sequence of a batch says how many of its tokens are real");
  for (std::size_t row = 0; row < counts.size(); ++row) {
    base::check(counts[row] >= 1 && counts[row] <= step.time, "a sequence takes at least one token and at most all");
    lengths_[row] += counts[row];
  }
  seen_.copy_(at::tensor(lengths_, at::kLong));
}

}  // namespace lockstep::model
