// Writes initial weights: each leaf's numbers follow from the seed and its name alone.
#include <algorithm>

#include "base/error.h"
#include "base/hash/hash64.h"
#include "base/hash/mix.h"
#include "base/text.h"
#include "rank/kernels/kernels.h"
#include "rank/model/model.h"
#include "rank/model/weights/quantized.h"

namespace lockstep::model {
namespace {

// On the host, whatever the device: only adapters start like this, and they are small.
at::Tensor uniform_numbers(std::int64_t first, std::int64_t count, std::uint64_t key, double bound) {
  at::Tensor numbers = at::empty({count}, at::kFloat);
  float* out = numbers.mutable_data_ptr<float>();
  for (std::int64_t i = 0; i < count; ++i) {
    const double share = double(base::mix(key + std::uint64_t(first + i)) >> 11) * 0x1p-53;
    out[i] = float((2 * share - 1) * bound);
  }
  return numbers;
}

std::uint64_t key_of(const LeafSpec& leaf, std::int64_t seed) {
  return base::hash64(leaf.pieces.front().name, std::uint64_t(seed) * 0x9e3779b97f4a7c15ull + 0xcbf29ce484222325ull);
}

// The numbers that the dense leaf would hold, quantized as they are made.
void initialize_quantized(const Unit& unit, std::size_t leaf, std::uint64_t key) {
  const LeafSpec& spec = unit.spec().leaves[leaf];
  QuantizedMatrix& matrix = *unit.quantized(leaf);
  std::int64_t before = 0;
  for (std::size_t piece = 0; piece < spec.pieces.size(); ++piece) {
    matrix.store(piece, [&](std::int64_t first, std::int64_t count) {
      const at::Tensor numbers = at::empty({count}, unit.weights().options().dtype(at::kFloat));
      kernels::random_normal(numbers, key, spec.init_std, before + first);
      return numbers;
    });
    before += matrix.elements(piece);
  }
}

// Numbers [first, first + count) of a leaf, in f32.
at::Tensor initial_numbers(const LeafSpec& leaf, std::int64_t first, const at::Tensor& out, std::uint64_t key) {
  switch (leaf.init) {
    case Init::ones: return out.fill_(1);
    case Init::zeros: return out.fill_(0);
    case Init::uniform: return out.copy_(uniform_numbers(first, out.numel(), key, leaf.init_std));
    case Init::normal: kernels::random_normal(out, key, leaf.init_std, first); return out;
  }
  throw base::Bug("a leaf that begins as nothing");
}

void initialize_dense(const Unit& unit, std::size_t leaf, std::uint64_t key) {
  const std::int64_t begin = std::max(unit.offset(leaf), unit.held_begin()) - unit.held_begin();  // in what is held
  const std::int64_t end = std::min(unit.offset(leaf) + unit.spec().leaves[leaf].elements() - unit.held_begin(), unit.held_count());
  if (begin >= end) return;
  const at::Tensor held = unit.held_weights().narrow(0, begin, end - begin);
  const at::Tensor exact =
      unit.master().defined() ? unit.master().narrow(0, begin, end - begin) : at::empty({end - begin}, held.options().dtype(at::kFloat));
  initial_numbers(unit.spec().leaves[leaf], unit.held_begin() + begin - unit.offset(leaf), exact, key);
  if (exact.const_data_ptr() != held.const_data_ptr()) held.copy_(exact);
}

}  // namespace

void initialize(std::vector<std::unique_ptr<Unit>>& units, std::int64_t seed) {
  for (auto& unit : units) {
    if (!unit) continue;
    const auto& leaves = unit->spec().leaves;
    for (std::size_t i = 0; i < leaves.size(); ++i)
      unit->quantized(i) ? initialize_quantized(*unit, i, key_of(leaves[i], seed)) : initialize_dense(*unit, i, key_of(leaves[i], seed));
    unit->keep_share();
  }
}

}  // namespace lockstep::model
