// Adds up what tensors hold.
#include "rank/train/memory/held_buffers.h"

#include "rank/model/buffers.h"
#include "rank/model/weights/quantized.h"

namespace lockstep::train {

std::vector<layout::PartBytes> held_buffers(const Run& run) {
  using layout::Part;
  model::HeldMemory weights, frozen, adapters, masters, gradients, states, slots;
  std::int64_t quantized = 0;
  const auto look_at = [&](const model::Unit& unit, model::HeldMemory& trained) {
    const bool packed = unit.shard() && unit.shard()->packed;
    if (packed)
      quantized += static_cast<std::int64_t>(unit.weights_to_gather().nbytes());
    else
      (unit.trainable() ? trained : frozen).add(unit.weights_to_gather());
    if (!unit.weights_to_gather().is_alias_of(unit.gathered_weights())) slots.add(unit.gathered_weights());
    if (unit.master().defined() && !unit.master().is_same(unit.held_weights())) masters.add(unit.master());
    if (unit.trainable() && !unit.summed_gradients().is_alias_of(unit.gradients_to_sum())) gradients.add(unit.summed_gradients());
    for (std::size_t leaf = 0; leaf < unit.spec().leaves.size(); ++leaf) {
      const model::QuantizedMatrix* matrix = unit.quantized(leaf);
      if (matrix != nullptr) quantized += packed ? matrix->map_bytes() : matrix->bytes();
    }
  };
  for (const auto& unit : run.replica.units) look_at(*unit, weights);
  for (const auto& unit : run.replica.adapters)
    if (unit) look_at(*unit, adapters);
  for (const parallel::GradientMemory& home : run.replica.gradients) (home.in_turns ? slots : gradients).add(home.memory);
  for (const model::NamedSlice& slice : run.optimizer->named_state()) states.add(slice.view);
  const model::Stage::Held held = run.model->held();
  std::vector<layout::PartBytes> parts = {
      {Part::weights, weights.bytes()},    {Part::frozen, frozen.bytes()},   {Part::quantized, quantized},
      {Part::adapters, adapters.bytes()},  {Part::masters, masters.bytes()}, {Part::gradients, gradients.bytes()},
      {Part::states, states.bytes()},      {Part::slots, slots.bytes()},     {Part::activations, held.activations},
      {Part::dense_copy, held.dense_copy}, {Part::logits, held.logits}};
  std::erase_if(parts, [](const layout::PartBytes& part) { return part.bytes == 0; });
  return parts;
}

}  // namespace lockstep::train
