// A unit is a slice of the model (embedding, one block, head) whose weights live in one flat buffer.
// Reduction, optimizer and checkpoints work on units; parameters are views into them.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "rank/model/layout.h"

namespace lockstep::model {

class QuantizedMatrix;

// What a rank holds for good of a unit's flat buffer, where other ranks hold the rest: numbers [begin, begin + count). Buffers have room
// for `room` of them, on every rank as many, so that the room of all ranks in a row holds the whole unit.
struct Shard {
  int index = 0, ranks = 1;
  std::int64_t begin = 0, count = 0, room = 0;
  // Of a frozen unit with quantized matrices: numbers are bytes of layout::packed_bytes. It is written whole, where layers find it, and
  // keep_share() takes this rank's bytes of it.
  bool packed = false;
};

struct UnitStorage {
  at::Device device = at::kCPU;
  at::ScalarType weight_dtype = at::kFloat;
  at::ScalarType gradient_dtype = at::kFloat;
  bool trainable = true;                           // false: no gradients, no master weights
  bool master = true;                              // false: 16-bit weights are their own masters, updated with stochastic rounding
  Quantization quantization = Quantization::none;  // of matrices, where the unit is not trained
  bool double_quant = true;                        // NF4: the scales are quantized too
  at::Tensor gradient_memory = {};                 // [flat_elements] where the gradients shall live; undefined: memory of the unit's own
  std::optional<Shard> shard = {};                 // nothing: all of it
  // Of a unit that is held in shards, [room x ranks] each. Where layers find it whole while it is open: `keeps` says that it stays there.
  at::Tensor weight_memory = {};
  bool keeps_weights = true, keeps_gradients = true;
};

layout::Holding holding_of(const UnitStorage& storage);

// A tensor of a checkpoint, as much of it as a rank holds: numbers [begin, begin + view.numel()) of the flattened whole. A view of the
// whole has its shape, one of a slice is flat; where nothing of it is held it is empty.
struct NamedSlice {
  std::string name;
  at::Tensor view;
  std::vector<std::int64_t> shape;  // of the whole
  std::int64_t begin = 0;
};

// Of a piece that begins at number `at` of what is held, or before it.
NamedSlice slice_of(const Piece& piece, std::int64_t at, const at::Tensor& held);

// Owns the buffers, laid out as layout::flat_layout says; padding stays zero. Quantized leaves are no part of the flat buffers: they have
// no offset and no weight(leaf). What is held for good (exact, held_weights, held_gradients) is all of the unit or, in a shard, some of it.
class Unit {
 public:
  Unit(UnitSpec spec, const UnitStorage& storage);

  const std::string& name() const { return spec_.name; }
  const UnitSpec& spec() const { return spec_; }
  const layout::FlatLayout& flat() const { return flat_; }
  std::int64_t elements() const { return flat_.elements; }  // padding included
  std::int64_t decayed() const { return flat_.decayed; }    // elements [0, decayed) take weight decay

  const at::Tensor& weights() const { return weights_; }      // [elements] what forward reads
  const at::Tensor& gradients() const { return gradients_; }  // [elements] undefined if not trainable
  bool trainable() const { return gradients_.defined(); }
  // Moves a trainable unit's gradients: [elements] (of a shard: [room x ranks]) of any float type, which may differ from the weights'.
  // Undefined: lets go of their memory, for the moment until they get another place. sums: the type of held_gradients() where those are
  // kept beside them; undefined: the memory's.
  void place_gradients(const at::Tensor& memory, std::optional<at::ScalarType> sums = {});

  // What this rank holds for good: numbers [held_begin, held_begin + held_count) of the flat buffers.
  std::int64_t held_begin() const { return in_numbers() ? shard_->begin : 0; }
  std::int64_t held_count() const { return in_numbers() ? shard_->count : flat_.elements; }
  const std::optional<Shard>& shard() const { return shard_; }
  const at::Tensor& held_weights() const { return held_weights_; }      // [held_count] in the type that forward reads
  const at::Tensor& held_gradients() const { return held_gradients_; }  // [held_count] undefined if not trainable
  // [held_count] f32; shares weights' storage where those are f32; undefined if not trainable or stored without.
  const at::Tensor& master() const { return master_; }
  // The weights in the precision that counts, for checkpoints, broadcasts and updates: masters where there are some.
  const at::Tensor& exact() const { return master_.defined() ? master_ : held_weights_; }
  // After exact() was written: what forward reads of it becomes its rounding.
  void refresh_weights() const {
    if (exact().const_data_ptr() != held_weights_.const_data_ptr()) held_weights_.copy_(exact());
  }
  // After a packed unit was written whole.
  void keep_share() const;
  // Of a shard, [room] each: what ranks exchange, its padding included.
  const at::Tensor& weights_to_gather() const { return own_weights_; }
  const at::Tensor& gathered_weights() const { return whole_weights_; }    // [room x ranks]
  const at::Tensor& summed_gradients() const { return own_gradients_; }    // of this rank's share
  const at::Tensor& gradients_to_sum() const { return whole_gradients_; }  // [room x ranks]

  const at::Tensor& weight(std::size_t leaf) const { return leaf_weights_[leaf]; }
  const at::Tensor& gradient(std::size_t leaf) const { return leaf_gradients_[leaf]; }
  std::int64_t offset(std::size_t leaf) const { return flat_.offsets[leaf].value_or(-1); }
  // Null where the leaf is held dense, in weight(leaf).
  QuantizedMatrix* quantized(std::size_t leaf) const { return quantized_[leaf].get(); }
  // Of everything the unit holds.
  std::int64_t bytes() const;

  // A view of `flat` (any buffer of elements() numbers) for every piece that is held dense, in order: what checkpoints store.
  struct NamedView {
    std::string name;
    at::Tensor view;
  };
  std::vector<NamedView> pieces_of(const at::Tensor& flat) const;
  // The same pieces of `held` (any buffer of held_count() numbers).
  std::vector<NamedSlice> pieces_in(const at::Tensor& held) const;

 private:
  bool in_numbers() const { return shard_ && !shard_->packed; }
  at::Tensor view_of(std::size_t leaf, const at::Tensor& flat) const;
  // [room] of this rank's share, in a whole buffer or, where that is not kept, beside it.
  at::Tensor own_share(const at::Tensor& whole, bool kept, at::ScalarType beside) const;

  UnitSpec spec_;
  layout::FlatLayout flat_;
  std::optional<Shard> shard_;
  bool keeps_gradients_ = true;
  at::Tensor whole_weights_, whole_gradients_;  // padding of shards included
  at::Tensor own_weights_, own_gradients_;
  at::Tensor weights_, gradients_, master_, held_weights_, held_gradients_;  // views of the above, but for masters
  std::vector<at::Tensor> leaf_weights_, leaf_gradients_;
  std::vector<std::shared_ptr<QuantizedMatrix>> quantized_;  // by leaf
};

}  // namespace lockstep::model
