// A unit is a slice of the model (embedding, one block, head) whose weights live in one flat buffer.
// Reduction, optimizer and checkpoints work on units; parameters are views into them.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "rank/model/layout.h"

namespace lockstep::model {

class QuantizedMatrix;

struct UnitStorage {
  at::Device device = at::kCPU;
  at::ScalarType weight_dtype = at::kFloat;
  at::ScalarType gradient_dtype = at::kFloat;
  bool trainable = true;                           // false: no gradients, no master weights
  bool master = true;                              // false: 16-bit weights are their own masters, updated with stochastic rounding
  Quantization quantization = Quantization::none;  // of matrices, where the unit is not trained
  bool double_quant = true;                        // NF4: the scales are quantized too
  at::Tensor gradient_memory = {};                 // [flat_elements] where the gradients shall live; undefined: memory of the unit's own
};

// Owns the buffers, laid out as layout::flat_layout says; padding stays zero. Quantized leaves are no part of the flat buffers: they have
// no offset and no weight(leaf).
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
  // Moves a trainable unit's gradients: [elements] of any float type, which may differ from the weights'. Undefined: lets go of their
  // memory, for the moment until they get another place.
  void place_gradients(const at::Tensor& memory);
  // [elements] f32; shares weights' storage where those are f32; undefined if not trainable or stored without.
  const at::Tensor& master() const { return master_; }
  // The weights in the precision that counts, for checkpoints, broadcasts and updates: masters where there are some.
  const at::Tensor& exact() const { return master_.defined() ? master_ : weights_; }
  // After exact() was written: what forward reads becomes its rounding.
  void refresh_weights() const {
    if (exact().const_data_ptr() != weights_.const_data_ptr()) weights_.copy_(exact());
  }

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

 private:
  at::Tensor view_of(std::size_t leaf, const at::Tensor& flat) const;

  UnitSpec spec_;
  layout::FlatLayout flat_;
  at::Tensor weights_, gradients_, master_;
  std::vector<at::Tensor> leaf_weights_, leaf_gradients_;
  std::vector<std::shared_ptr<QuantizedMatrix>> quantized_;  // by leaf
};

}  // namespace lockstep::model
