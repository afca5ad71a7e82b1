// Writes initial weights: each leaf's numbers follow from the seed and its name alone.
#include "base/hash/hash64.h"
#include "base/hash/mix.h"
#include "base/text.h"
#include "rank/kernels/kernels.h"
#include "rank/model/model.h"
#include "rank/model/weights/quantized.h"

namespace lockstep::model {
namespace {

// On the host, whatever the device: only adapters start like this, and they are small.
at::Tensor uniform_numbers(std::int64_t count, std::uint64_t key, double bound) {
  at::Tensor numbers = at::empty({count}, at::kFloat);
  float* out = numbers.mutable_data_ptr<float>();
  for (std::int64_t i = 0; i < count; ++i) {
    const double share = double(base::mix(key + std::uint64_t(i)) >> 11) * 0x1p-53;
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

}  // namespace

void initialize(std::vector<std::unique_ptr<Unit>>& units, std::int64_t seed) {
  for (auto& unit : units) {
    if (!unit) continue;
    const auto& leaves = unit->spec().leaves;
    for (std::size_t i = 0; i < leaves.size(); ++i) {
      if (unit->quantized(i)) {
        initialize_quantized(*unit, i, key_of(leaves[i], seed));
        continue;
      }
      const auto& weight = unit->weight(i);
      const auto& master = unit->master();
      if (leaves[i].init == Init::ones || leaves[i].init == Init::zeros) {
        const double value = leaves[i].init == Init::ones ? 1 : 0;
        weight.fill_(value);
        if (master.defined()) master.narrow(0, unit->offset(i), weight.numel()).fill_(value);
        continue;
      }
      const auto key = key_of(leaves[i], seed);
      const auto exact = master.defined() ? master.narrow(0, unit->offset(i), weight.numel())
                                          : at::empty({weight.numel()}, weight.options().dtype(at::kFloat));
      if (leaves[i].init == Init::normal) {
        kernels::random_normal(exact, key, leaves[i].init_std);
      } else {
        exact.copy_(uniform_numbers(exact.numel(), key, leaves[i].init_std));
      }
      if (exact.const_data_ptr() != weight.const_data_ptr()) weight.view({-1}).copy_(exact);
    }
  }
}

}  // namespace lockstep::model
