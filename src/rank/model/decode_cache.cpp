// The bookkeeping of sequences that are being written.
#include "rank/model/decode_cache.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include <algorithm>

#include "base/error.h"
#include "layout/memory/memory.h"

namespace lockstep::model {

DecodeCache::DecodeCache(const Dims& dims, std::int64_t window, std::int64_t batch, at::Device device,
                         std::vector<std::unique_ptr<DecodeState>> layers)
    : window_(window),
      limit_(dims.max_time),
      lengths_(std::size_t(batch)),
      seen_(at::zeros({batch}, at::TensorOptions().dtype(at::kLong).device(device))),
      layers_(std::move(layers)) {}

void DecodeCache::reserve(std::int64_t tokens) {
  if (tokens <= capacity_) return;
  const auto used = std::min(capacity_, lengths_.empty() ? 0 : *std::max_element(lengths_.begin(), lengths_.end()));
  capacity_ = layout::round_up(tokens, layout::kv_cache_step);
  for (const auto& layer : layers_) layer->reserve(capacity_, used);
}

void DecodeCache::cut(std::int64_t row, std::int64_t length) {
  auto& now = lengths_.at(std::size_t(row));
  base::check(length <= now, "a cache is cut to what it has seen, not to more");
  now = length;
  seen_.select(0, row).fill_(length);
}

void DecodeCache::keep(std::span<const std::int64_t> rows) {
  const at::Tensor chosen = at::tensor(at::ArrayRef<std::int64_t>(rows.data(), rows.size()), at::kLong).to(seen_.device());
  for (const auto& layer : layers_) layer->keep(chosen);
  seen_ = seen_.index_select(0, chosen);
  std::vector<std::int64_t> lengths;
  for (const auto row : rows) lengths.push_back(lengths_.at(std::size_t(row)));
  lengths_ = std::move(lengths);
}

DecodeStep DecodeCache::begin(std::int64_t time) {
  const auto [least, most] = std::minmax_element(lengths_.begin(), lengths_.end());
  DecodeStep step{.time = time, .span = *most + time, .first = *least, .fresh = *most == 0};
  // Half as much again, so that growing costs little a token; never far beyond what the model can read.
  if (step.span > capacity_) reserve(std::max(step.span, std::min(capacity_ * 3 / 2, limit_)));
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

void DecodeCache::finish(const DecodeStep& step, std::span<const std::int64_t> counts) {
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
