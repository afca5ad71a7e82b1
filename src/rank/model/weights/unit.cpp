// Lays a unit's leaves out in flat buffers and hands out views of them.
#include "rank/model/weights/unit.h"

#include <algorithm>

#include "base/error.h"
#include "rank/model/model.h"
#include "rank/model/weights/quantized.h"

namespace lockstep::model {

layout::Holding holding_of(const UnitStorage& storage) {
  return {.dtype = storage.weight_dtype == at::kFloat  ? config::DType::f32
                   : storage.weight_dtype == at::kHalf ? config::DType::f16
                                                       : config::DType::bf16,
          .trained = storage.trainable,
          .master = storage.master,
          .quantization = storage.quantization,
          .double_quant = storage.double_quant};
}

at::ScalarType scalar_type(config::DType dtype) {
  switch (dtype) {
    case config::DType::f32: return at::kFloat;
    case config::DType::f16: return at::kHalf;
    case config::DType::bf16: return at::kBFloat16;
  }
  throw base::Bug("a dtype that has no name");
}

Unit::Unit(UnitSpec spec, const UnitStorage& storage)
    : spec_(std::move(spec)),
      flat_(layout::flat_layout(spec_, holding_of(storage))),
      shard_(storage.shard),
      keeps_gradients_(storage.keeps_gradients) {
  const auto on_device = at::TensorOptions().device(storage.device);
  const bool packed = shard_ && shard_->packed;
  const at::ScalarType type = packed ? at::kByte : storage.weight_dtype;
  const std::int64_t whole = shard_ ? shard_->room * shard_->ranks : flat_.elements;
  whole_weights_ = storage.weight_memory.defined() ? storage.weight_memory : at::zeros({whole}, on_device.dtype(type));
  base::check(whole_weights_.numel() == whole, "a unit's memory is of its size");
  own_weights_ = own_share(whole_weights_, storage.keeps_weights, type);
  PackedMemory bytes(whole_weights_);
  weights_ = packed ? bytes.take(flat_.elements, storage.weight_dtype) : whole_weights_.narrow(0, 0, flat_.elements);
  held_weights_ = packed ? weights_ : own_weights_.narrow(0, 0, held_count());
  for (std::size_t i = 0; i < spec_.leaves.size(); ++i)
    quantized_.push_back(flat_.offsets[i] ? nullptr
                                          : std::make_shared<QuantizedMatrix>(spec_.leaves[i], storage, packed ? &bytes : nullptr));
  if (storage.trainable) {
    if (storage.weight_dtype == at::kFloat) {
      master_ = held_weights_;
    } else if (storage.master) {
      master_ = at::zeros({held_count()}, on_device.dtype(at::kFloat));
    }
  }
  for (std::size_t i = 0; i < spec_.leaves.size(); ++i) {
    leaf_weights_.push_back(quantized_[i] ? at::Tensor() : view_of(i, weights_));
    leaf_gradients_.emplace_back();
  }
  if (storage.trainable)
    place_gradients(storage.gradient_memory.defined() ? storage.gradient_memory
                                                      : at::zeros({whole}, on_device.dtype(storage.gradient_dtype)));
}

at::Tensor Unit::own_share(const at::Tensor& whole, bool kept, at::ScalarType beside) const {
  if (!shard_) return whole;
  if (!kept) return at::zeros({shard_->room}, whole.options().dtype(beside));
  return whole.narrow(0, shard_->index * shard_->room, shard_->room);
}

void Unit::keep_share() const {
  if (!shard_ || !shard_->packed || own_weights_.storage().is_alias_of(whole_weights_.storage())) return;
  own_weights_.copy_(whole_weights_.narrow(0, shard_->index * shard_->room, shard_->room));
}

at::Tensor Unit::view_of(std::size_t leaf, const at::Tensor& flat) const {
  const LeafSpec& spec = spec_.leaves[leaf];
  return flat.narrow(0, offset(leaf), spec.elements()).view(spec.shape());
}

void Unit::place_gradients(const at::Tensor& memory, std::optional<at::ScalarType> sums) {
  base::check(!memory.defined() || memory.numel() == whole_weights_.numel(), "gradient memory is of the unit's size");
  whole_gradients_ = memory;
  gradients_ = memory.defined() ? memory.narrow(0, 0, flat_.elements) : memory;
  own_gradients_ = memory.defined() ? own_share(memory, keeps_gradients_, sums.value_or(memory.scalar_type())) : memory;
  held_gradients_ = own_gradients_.defined() ? own_gradients_.narrow(0, 0, held_count()) : own_gradients_;
  for (std::size_t i = 0; i < spec_.leaves.size(); ++i) leaf_gradients_[i] = memory.defined() ? view_of(i, gradients_) : at::Tensor();
}

std::int64_t Unit::bytes() const {
  std::size_t bytes = weights_.nbytes();
  if (trainable()) bytes += gradients_.nbytes() + (master_.is_same(held_weights_) ? 0 : master_.nbytes());
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

std::vector<NamedSlice> Unit::pieces_in(const at::Tensor& held) const {
  base::check(held.dim() == 1 && held.numel() == held_count(), "pieces are cut from a buffer of what is held");
  std::vector<NamedSlice> slices;
  for (std::size_t i = 0; i < spec_.leaves.size(); ++i) {
    if (quantized_[i]) continue;
    std::int64_t at = offset(i) - held_begin();  // where the piece begins in what is held
    for (const auto& piece : spec_.leaves[i].pieces) {
      slices.push_back(slice_of(piece, at, held));
      at += piece.elements();
    }
  }
  return slices;
}

NamedSlice slice_of(const Piece& piece, std::int64_t at, const at::Tensor& held) {
  const std::int64_t all = piece.elements();
  const std::int64_t begin = std::clamp<std::int64_t>(-at, 0, all), end = std::clamp<std::int64_t>(held.numel() - at, begin, all);
  if (begin == 0 && end == all) return {piece.name, held.narrow(0, at, all).view(piece.shape), piece.shape, 0};
  return {piece.name, begin == end ? held.narrow(0, 0, 0) : held.narrow(0, at + begin, end - begin), piece.shape, begin};
}

}  // namespace lockstep::model
