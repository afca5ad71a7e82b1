// Cuts units into shards and gives them memory: what is kept for good, and what they take in turns while they are open.
#include <algorithm>

#include "layout/spread/schedule.h"
#include "rank/parallel/replicate.h"
#include "rank/parallel/sharded_store.h"

namespace lockstep::parallel {
namespace {

using layout::Spread;

struct Cut {
  model::Shard shard;
  std::optional<std::size_t> slot;
  std::int64_t whole() const { return shard.room * shard.ranks; }
};

std::vector<Cut> cut(const std::vector<model::UnitSpec>& specs, const model::UnitStorage& storage, const comm::Group& group,
                     config::Optimizer optimizer) {
  std::vector<Cut> cuts;
  for (std::size_t i = 0; i < specs.size(); ++i) {
    const layout::UnitCut unit = layout::cut_of(specs[i], model::holding_of(storage), optimizer, group.size());
    const layout::Slice mine = layout::shard_of(i, unit.elements, group.rank(), unit.room);
    cuts.push_back({{group.rank(), group.size(), mine.begin, mine.count, unit.room, unit.packed}, layout::slot_of(i, specs.size())});
  }
  return cuts;
}

// Two buffers, each as large as the largest unit that takes it.
std::vector<at::Tensor> slot_memory(const std::vector<Cut>& cuts, const at::TensorOptions& options) {
  std::vector<std::int64_t> most(layout::slots, 0);
  bool packed = false;
  for (const Cut& one : cuts) {
    if (!one.slot) continue;
    most[*one.slot] = std::max(most[*one.slot], one.whole());
    packed = one.shard.packed;  // as all of them are: quantized matrices are the blocks'
  }
  std::vector<at::Tensor> memory;
  for (const std::int64_t elements : most) memory.push_back(at::zeros({elements}, packed ? options.dtype(at::kByte) : options));
  return memory;
}

}  // namespace

Replica make_sharded(std::vector<model::UnitSpec> specs, std::vector<std::optional<model::UnitSpec>> adapters,
                     const model::UnitStorage& storage, const comm::Mesh& mesh, const layout::Placement& placement,
                     const config::RunConfig& config) {
  const std::vector<Cut> cuts = cut(specs, storage, mesh.along(layout::Axis::shard), config.trainer.optimizer);
  const bool turns_weights = placement.weights != Spread::whole,
             turns_gradients = storage.trainable && placement.gradients != Spread::whole;
  const auto options = at::TensorOptions().device(storage.device);
  std::vector<at::Tensor> weights, gradients;
  if (turns_weights) weights = slot_memory(cuts, options.dtype(storage.weight_dtype));
  if (turns_gradients) gradients = slot_memory(cuts, options.dtype(storage.gradient_dtype));

  Replica replica;
  ShardedStore::Slots slots;
  if (turns_gradients)
    for (const at::Tensor& memory : gradients) replica.gradients.push_back({memory, {}, /*in_turns=*/true});
  for (std::size_t i = 0; i < specs.size(); ++i) {
    const auto& [shard, slot] = cuts[i];
    model::UnitStorage here = storage;
    here.shard = shard;
    slots.weights.push_back(turns_weights ? slot : std::nullopt);
    slots.gradients.push_back(turns_gradients ? slot : std::nullopt);
    here.keeps_weights = !slots.weights.back();
    here.keeps_gradients = !turns_gradients;
    if (slots.weights.back()) here.weight_memory = weights[*slot].narrow(0, 0, cuts[i].whole());
    GradientMemory* home = nullptr;
    if (storage.trainable) {
      if (!slots.gradients.back()) replica.gradients.push_back({at::zeros({cuts[i].whole()}, options.dtype(storage.gradient_dtype)), {}});
      home = slots.gradients.back() ? &replica.gradients[*slot] : &replica.gradients.back();
      here.gradient_memory = home->memory.narrow(0, 0, cuts[i].whole());
    }
    replica.units.push_back(std::make_unique<model::Unit>(std::move(specs[i]), here));
    if (home) home->tenants.push_back({replica.units.back().get(), 0, cuts[i].whole()});
  }
  if (!adapters.empty()) add_adapters(replica, std::move(adapters), storage);
  auto store =
      std::make_unique<ShardedStore>(replica.in_forward_order(), replica.adapters_in_forward_order(), mesh, placement, slots, config);
  if (storage.trainable) replica.exchange = store.get();
  replica.store = std::move(store);
  return replica;
}

}  // namespace lockstep::parallel
