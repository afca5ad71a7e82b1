// Lays a unit's leaves out in flat buffers and hands out views of them.
#include "rank/model/weights/unit.h"

#include "base/error.h"
#include "rank/model/model.h"
#include "rank/model/weights/quantized.h"

namespace lockstep::model {

namespace {

layout::Holding holding_of(const UnitStorage& storage) {
  return {
      .trained = storage.trainable, .master = storage.master, .quantization = storage.quantization, .double_quant = storage.double_quant};
}

}  // namespace

at::ScalarType scalar_type(config::DType dtype) {
  switch (dtype) {
    case config::DType::f32: return at::kFloat;
    case config::DType::f16: return at::kHalf;
    case config::DType::bf16: return at::kBFloat16;
  }
  throw base::Bug("a dtype that has no name");
}

Unit::Unit(UnitSpec spec, const UnitStorage& storage) : spec_(std::move(spec)), flat_(layout::flat_layout(spec_, holding_of(storage))) {
  for (std::size_t i = 0; i < spec_.leaves.size(); ++i)
    quantized_.push_back(flat_.offsets[i] ? nullptr : std::make_shared<QuantizedMatrix>(spec_.leaves[i], storage));

  const auto on_device = at::TensorOptions().device(storage.device);
  weights_ = at::zeros({flat_.elements}, on_device.dtype(storage.weight_dtype));
  if (storage.trainable) {
    if (storage.weight_dtype == at::kFloat) {
      master_ = weights_;
    } else if (storage.master) {
      master_ = at::zeros({flat_.elements}, on_device.dtype(at::kFloat));
    }
  }
  for (std::size_t i = 0; i < spec_.leaves.size(); ++i) {
    leaf_weights_.push_back(quantized_[i] ? at::Tensor() : view_of(i, weights_));
    leaf_gradients_.emplace_back();
  }
  if (storage.trainable)
    place_gradients(storage.gradient_memory.defined() ? storage.gradient_memory
                                                      : at::zeros({flat_.elements}, on_device.dtype(storage.gradient_dtype)));
}

at::Tensor Unit::view_of(std::size_t leaf, const at::Tensor& flat) const {
  const LeafSpec& spec = spec_.leaves[leaf];
  return flat.narrow(0, offset(leaf), spec.elements()).view(spec.shape());
}

void Unit::place_gradients(const at::Tensor& memory) {
  base::check(!memory.defined() || memory.numel() == flat_.elements, "gradient memory is of the unit's size");
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
  base::check(flat.dim() == 1 && flat.numel() == flat_.elements, "pieces are cut from a buffer of the unit's size");
  std::vector<NamedView> views;
  for (std::size_t i = 0; i < spec_.leaves.size(); ++i) {
    if (quantized_[i]) continue;
    auto at = offset(i);
    for (const auto& piece : spec_.leaves[i].pieces) {
      const auto count = piece.elements();
      views.push_back({piece.name, flat.narrow(0, at, count).view(piece.shape)});
      at += count;
    }
  }
  return views;
}

}  // namespace lockstep::model
