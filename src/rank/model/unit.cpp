// Lays a unit's leaves out in flat buffers and hands out views of them.
#include "rank/model/unit.h"

#include "base/error.h"
#include "rank/model/quantized.h"

namespace lockstep::model {

namespace {

constexpr std::int64_t kLeafAlignment = 64;   // elements: 128 bytes even for 16-bit types, so vector loads never straddle
constexpr std::int64_t kUnitAlignment = 256;  // elements: divides into equal 16-byte aligned shards for up to 32 ranks

std::int64_t round_up(std::int64_t value, std::int64_t multiple) { return (value + multiple - 1) / multiple * multiple; }

std::int64_t product(const std::vector<std::int64_t>& shape) {
  std::int64_t result = 1;
  for (auto size : shape) result *= size;
  return result;
}

}  // namespace

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

std::int64_t flat_elements(const UnitSpec& spec) {
  std::int64_t elements = 0;
  for (const LeafSpec& leaf : spec.leaves) elements += round_up(leaf.elements(), kLeafAlignment);
  return round_up(elements, kUnitAlignment);
}

Unit::Unit(UnitSpec spec, const UnitStorage& storage) : spec_(std::move(spec)) {
  bool plain = false;
  for (const auto& leaf : spec_.leaves) {
    base::check(!(leaf.decay && plain), "leaves with weight decay stand before those without");
    plain |= !leaf.decay;
    const bool quantize = leaf.role == Role::inner && leaf.decay && !storage.trainable && storage.quantization != Quantization::none;
    quantized_.push_back(quantize ? std::make_shared<QuantizedMatrix>(leaf, storage) : nullptr);
    offsets_.push_back(quantize ? -1 : elements_);
    if (quantize) continue;
    elements_ += round_up(leaf.elements(), kLeafAlignment);
    if (leaf.decay) decayed_ = elements_;
  }
  elements_ = round_up(elements_, kUnitAlignment);

  const auto on_device = at::TensorOptions().device(storage.device);
  weights_ = at::zeros({elements_}, on_device.dtype(storage.weight_dtype));
  if (storage.trainable) {
    if (storage.weight_dtype == at::kFloat) {
      master_ = weights_;
    } else if (storage.master) {
      master_ = at::zeros({elements_}, on_device.dtype(at::kFloat));
    }
  }
  for (std::size_t i = 0; i < spec_.leaves.size(); ++i) {
    leaf_weights_.push_back(quantized_[i] ? at::Tensor() : view_of(i, weights_));
    leaf_gradients_.emplace_back();
  }
  if (storage.trainable)
    place_gradients(storage.gradient_memory.defined() ? storage.gradient_memory
                                                      : at::zeros({elements_}, on_device.dtype(storage.gradient_dtype)));
}

at::Tensor Unit::view_of(std::size_t leaf, const at::Tensor& flat) const {
  const auto shape = spec_.leaves[leaf].shape();
  return flat.narrow(0, offsets_[leaf], product(shape)).view(shape);
}

void Unit::place_gradients(const at::Tensor& memory) {
  base::check(!memory.defined() || memory.numel() == elements_, "gradient memory is of the unit's size");
  gradients_ = memory;
  for (std::size_t i = 0; i < spec_.leaves.size(); ++i) leaf_gradients_[i] = memory.defined() ? view_of(i, memory) : at::Tensor();
}

std::int64_t Unit::bytes() const {
  std::size_t bytes = weights_.nbytes();
  if (trainable()) bytes += gradients_.nbytes() + (master_.is_same(weights_) ? 0 : master_.nbytes());
  std::int64_t total = static_cast<std::int64_t>(bytes);
  for (const auto& matrix : quantized_) total += matrix ? matrix->bytes() : 0;
  return total;
}

std::vector<Unit::NamedView> Unit::pieces_of(const at::Tensor& flat) const {
  base::check(flat.dim() == 1 && flat.numel() == elements_, "pieces are cut from a buffer of the unit's size");
  std::vector<NamedView> views;
  for (std::size_t i = 0; i < spec_.leaves.size(); ++i) {
    if (quantized_[i]) continue;
    auto at = offsets_[i];
    for (const auto& piece : spec_.leaves[i].pieces) {
      const auto count = product(piece.shape);
      views.push_back({piece.name, flat.narrow(0, at, count).view(piece.shape)});
      at += count;
    }
  }
  return views;
}

}  // namespace lockstep::model
