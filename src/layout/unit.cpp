// Shapes, offsets and bytes of leaves.
#include "layout/unit.h"

#include <algorithm>
#include <functional>
#include <numeric>

#include "base/ceil_div.h"
#include "base/error.h"

namespace lockstep::layout {
namespace {

std::int64_t product(const std::vector<std::int64_t>& shape) {
  return std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>());
}

}  // namespace

std::int64_t Piece::elements() const { return product(shape); }

std::vector<std::int64_t> LeafSpec::shape() const {
  base::check(!pieces.empty(), "a leaf has at least one piece");
  auto shape = pieces.front().shape;
  for (std::size_t i = 1; i < pieces.size(); ++i) {
    base::check(pieces[i].shape.size() == shape.size() && std::equal(shape.begin() + 1, shape.end(), pieces[i].shape.begin() + 1),
                "pieces of one leaf differ in their first dimension alone");
    shape[0] += pieces[i].shape[0];
  }
  return shape;
}

std::int64_t LeafSpec::elements() const { return product(shape()); }

std::int64_t UnitSpec::parameters() const {
  std::int64_t count = 0;
  for (const LeafSpec& leaf : leaves) count += leaf.elements();
  return count;
}

bool is_quantized(const LeafSpec& leaf, const Holding& holding) {
  return leaf.role == Role::inner && leaf.decay && !holding.trained && holding.quantization != Quantization::none;
}

FlatLayout flat_layout(const UnitSpec& spec, const Holding& holding) {
  FlatLayout flat;
  bool plain = false;
  for (const LeafSpec& leaf : spec.leaves) {
    base::check(!(leaf.decay && plain), "leaves with weight decay stand before those without");
    plain |= !leaf.decay;
    if (is_quantized(leaf, holding)) {
      flat.offsets.emplace_back();
      continue;
    }
    flat.offsets.emplace_back(flat.elements);
    flat.elements += round_up(leaf.elements(), kLeafAlignment);
    if (leaf.decay) flat.decayed = flat.elements;
  }
  flat.elements = round_up(flat.elements, kUnitAlignment);
  return flat;
}

std::int64_t flat_elements(const UnitSpec& spec) { return flat_layout(spec, {}).elements; }

std::int64_t quantized_bytes(const Piece& piece, Quantization kind, bool double_quant) {
  constexpr std::int64_t number = sizeof(float), map = 256 * number;
  const std::int64_t count = piece.elements(), blocks = base::ceil_div(count, kWeightBlock);
  switch (kind) {
    case Quantization::none: break;
    case Quantization::int8: return count + blocks * number;
    case Quantization::nf4: {
      const std::int64_t codes = base::ceil_div(count, std::int64_t{2});
      return codes + (double_quant ? blocks + base::ceil_div(blocks, kScaleBlock) * number + map : blocks * number);
    }
  }
  throw base::Bug("a dense piece has no codes");
}

bool is_packed(const UnitSpec& spec, const Holding& holding) {
  return std::any_of(spec.leaves.begin(), spec.leaves.end(), [&](const LeafSpec& leaf) { return is_quantized(leaf, holding); });
}

std::int64_t packed_bytes(const UnitSpec& spec, const Holding& holding) {
  constexpr std::int64_t number = sizeof(float);
  std::int64_t bytes = round_up(flat_layout(spec, holding).elements * bytes_of(holding.dtype), kPackedAlignment);
  for (const LeafSpec& leaf : spec.leaves) {
    if (!is_quantized(leaf, holding)) continue;
    const bool nf4 = holding.quantization == Quantization::nf4, nested = nf4 && holding.double_quant;
    for (const Piece& piece : leaf.pieces) {
      const std::int64_t count = piece.elements(), blocks = base::ceil_div(count, kWeightBlock);
      bytes += round_up(nf4 ? base::ceil_div(count, std::int64_t{2}) : count, kPackedAlignment);
      bytes += round_up(nested ? blocks : blocks * number, kPackedAlignment);
      if (nested) bytes += round_up(base::ceil_div(blocks, kScaleBlock) * number, kPackedAlignment);
    }
  }
  return bytes;
}

std::int64_t bytes_of(config::DType dtype) {
  switch (dtype) {
    case config::DType::f32: return 4;
    case config::DType::f16:
    case config::DType::bf16: return 2;
  }
  throw base::Bug("a dtype that has no size");
}

}  // namespace lockstep::layout
