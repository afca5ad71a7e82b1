// Adds up shares and slots.
#include "layout/memory/shards.h"

#include <algorithm>
#include <array>

#include "layout/decoder.h"
#include "layout/spread/schedule.h"

namespace lockstep::layout {
namespace {

constexpr std::int64_t map_bytes = 256 * f32_bytes;

// 8-bit states have scales, and whole matrices are dealt out: an even share of them is near enough.
bool states_are_exact(config::Optimizer method) {
  return method == config::Optimizer::adamw || method == config::Optimizer::lion || method == config::Optimizer::sgd;
}

bool has_owners(const UnitSpec& unit, config::Optimizer method) {
  return std::any_of(unit.leaves.begin(), unit.leaves.end(), [&](const LeafSpec& leaf) {
    return std::any_of(leaf.pieces.begin(), leaf.pieces.end(), [&](const Piece& piece) { return updates_whole(method, leaf, piece); });
  });
}

std::int64_t maps_of(const HeldUnit& unit) {
  std::int64_t pieces = 0;
  for (const LeafSpec& leaf : unit.spec.leaves)
    if (is_quantized(leaf, unit.holding)) pieces += std::ssize(leaf.pieces);
  return unit.holding.quantization == Quantization::nf4 && unit.holding.double_quant ? pieces * map_bytes : 0;
}

}  // namespace

ShardedMemory sharded_memory(const std::vector<HeldUnit>& units, const config::RunConfig& config, int sharing) {
  const Placement placement = placement_of(config);
  const config::Optimizer method = config.trainer.optimizer;
  const std::size_t model_units = decoder_units(config.model).size();
  ShardedMemory memory;
  std::int64_t weights = 0, frozen = 0, quantized = 0, adapters = 0, masters = 0, states = 0;
  std::array<std::int64_t, slots> weight_slots{}, gradient_slots{};
  std::array<std::int64_t, 2> in_flight{};  // the largest of embedding and head, and of the layers between them
  for (std::size_t i = 0; i < units.size(); ++i) {
    const HeldUnit& unit = units[i];
    const Holding& h = unit.holding;
    const bool cut = i < model_units;
    const UnitCut share = cut ? cut_of(unit.spec, h, method, sharing) : UnitCut{unit.flat.elements, unit.flat.elements, bytes_of(h.dtype)};
    const std::int64_t whole = cut ? share.room * sharing : share.room, held = std::min(share.room, share.elements);
    const std::optional<std::size_t> slot = cut ? slot_of(i, model_units) : std::nullopt;
    const bool turns = slot && placement.weights != Spread::whole;
    if (turns) weight_slots[*slot] = std::max(weight_slots[*slot], whole * share.element_bytes);
    (share.packed          ? quantized
     : !h.trained          ? frozen
     : config.lora.enabled ? adapters
                           : weights) += (turns ? share.room : whole) * share.element_bytes;
    quantized += maps_of(unit);
    if (!h.trained) continue;
    if (h.master && h.dtype != config::DType::f32) masters += f32_bytes * held;
    const std::int64_t all_states = state_bytes(unit, method);
    states += !cut ? all_states : states_are_exact(method) ? all_states / unit.flat.elements * held : all_states / sharing;
    if (cut) in_flight[slot ? 1 : 0] = std::max(in_flight[slot ? 1 : 0], whole);
    if (cut && share.elements > share.room && has_owners(unit.spec, method)) memory.by_matrix = std::max(memory.by_matrix, whole);
    if (!cut || placement.gradients == Spread::whole) {
      memory.gradient_elements += whole;
      continue;
    }
    memory.sum_elements += share.room;
    if (slot)
      gradient_slots[*slot] = std::max(gradient_slots[*slot], whole);
    else
      memory.gradient_elements += whole;
  }
  std::int64_t slot_bytes = 0;
  for (std::size_t i = 0; i < slots; ++i) {
    slot_bytes += weight_slots[i];
    memory.of_them_in_slots += gradient_slots[i];
  }
  memory.gradient_elements += memory.of_them_in_slots;
  memory.in_flight = in_flight[0] + (most_reductions - 1) * in_flight[1];
  if (config.parallel.replicate > 1) memory.shares_between_replicas = memory.in_flight / sharing;
  memory.parts = {{Part::weights, weights},   {Part::frozen, frozen},   {Part::quantized, quantized},
                  {Part::adapters, adapters}, {Part::masters, masters}, {Part::states, states, states_are_exact(method)},
                  {Part::slots, slot_bytes}};
  return memory;
}

}  // namespace lockstep::layout
