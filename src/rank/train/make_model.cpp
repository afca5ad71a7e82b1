// Makes a run's units and gives them their first weights.
#include "rank/train/make_model.h"

#include <set>

#include "base/error.h"
#include "base/log.h"
#include "layout/spread/placement.h"
#include "rank/hub/hub_folder.h"
#include "rank/hub/peft.h"
#include "rank/kernels/fp8.h"
#include "rank/model/model.h"
#include "rank/model/projection/adapter.h"
#include "rank/train/memory/device_memory.h"

namespace lockstep::train {
namespace {

// The matrix that a module trained whole starts as.
std::size_t original_of(const config::ModelConfig& model, const parallel::Replica& replica, std::size_t unit) {
  const bool tied_head = unit + 1 == replica.units.size() && model.tie_embeddings;
  return tied_head ? 0 : unit;
}

// Into weights that are held dense.
void fold(const hub::PeftAdapter& adapter, const parallel::Replica& replica) {
  std::set<std::string> open;
  for (const std::string& name : adapter.touched()) open.insert(name);
  for (std::size_t i = 0; i < replica.units.size(); ++i) {
    const model::Unit& unit = *replica.units[i];
    replica.store->open(i, {});  // rows are folded whole, whoever holds what of them
    const std::vector<model::NamedSlice> held = unit.pieces_in(unit.exact());
    const std::vector<model::Unit::NamedView> whole = unit.pieces_of(unit.shard() ? unit.weights() : unit.exact());
    for (std::size_t piece = 0; piece < held.size(); ++piece) {
      const auto& [name, view, shape, begin] = held[piece];
      if (open.erase(name) == 0) continue;
      const at::Tensor folded = adapter.folded(name, whole[piece].view);
      view.view({-1}).copy_(folded.reshape({-1}).narrow(0, begin, view.numel()));
    }
    unit.refresh_weights();
    unit.keep_share();
    replica.store->close(i, {});
  }
  replica.store->updated();
  if (open.empty()) return;
  throw base::usage_error("lora", "{} changes {}, which this model does not have, or holds quantized. Fold it first: lockstep merge.",
                          adapter.path().string(), *open.begin());
}

}  // namespace

parallel::Replica make_units(const config::RunConfig& config, at::Device device, const comm::Mesh* mesh) {
  const layout::Holding holding = layout::model_holding(config);
  const at::ScalarType dtype = model::scalar_type(holding.dtype);
  const model::UnitStorage storage{.device = device,
                                   .weight_dtype = dtype,
                                   .gradient_dtype = config.lora.enabled ? at::kFloat : dtype,  // adapters: few, over many micro-batches
                                   .trainable = holding.trained,
                                   .master = holding.master,
                                   .quantization = holding.quantization,
                                   .double_quant = holding.double_quant};
  std::vector<model::UnitSpec> units = model::decoder_units(config.model);
  std::vector<std::optional<model::UnitSpec>> adapters;
  if (config.lora.enabled) adapters = model::adapter_units(config.model, config.lora);
  const layout::Placement placement = layout::placement_of(config);
  if (placement != layout::replicas && mesh != nullptr && mesh->along(layout::Axis::shard).size() > 1)
    return parallel::make_sharded(std::move(units), std::move(adapters), storage, *mesh, placement, config);
  const parallel::ReplicaSeat seat = mesh ? parallel::ReplicaSeat{mesh->data().rank(), mesh->data().size()} : parallel::ReplicaSeat{};
  if (!config.lora.enabled) return parallel::make_replica(std::move(units), storage, seat);
  return parallel::make_adapted_replica(std::move(units), std::move(adapters), storage, seat);
}

void choose_precision(const config::RunConfig& config, model::Stage& model, at::Device device) {
  if (!config.trainer.fp8) return;
  if (!kernels::has_fp8(device))
    throw base::machine_error("train",
                              "trainer.fp8 multiplies in 8 bits, which {} cannot: it takes an H100, an RTX 40 or a later GPU "
                              "(compute capability 8.9). Train without --fp8.",
                              describe_device(device));
  model.use_fp8();
}

void initialize_weights(const config::RunConfig& config, parallel::Replica& replica) {
  model::initialize(replica.units, config.trainer.seed);
}

std::vector<std::string> load_weights(const config::RunConfig& config, parallel::Replica& replica) {
  hub::LoadingRanks ranks;
  if (replica.store->opens_together())
    ranks.gather = [&](const at::Tensor& whole, const at::Tensor& mine) { replica.store->gather(whole, mine); };
  if (const comm::Group* replicas = replica.store->replicas()) {
    ranks.send = [=](const at::Tensor& numbers, int from, const std::string& what) { replicas->broadcast(numbers, from, what).wait(); };
    ranks.group = replicas->rank();
    ranks.groups = replicas->size();
  }
  const hub::Loaded loaded = hub::load_units(hub::HubFolder(config.model.path), replica.units, ranks);
  base::log_info("[model] read {} bytes of {} in {}", loaded.bytes_read, loaded.bytes_held, config.model.path);
  std::vector<std::string> notes = loaded.notes;
  const auto& adapters = config.lora.adapters;
  if (adapters.size() > 1) replica.store->updated();
  for (std::size_t i = 0; i + 1 < adapters.size(); ++i) {
    fold(hub::PeftAdapter(adapters[i]), replica);
    notes.push_back(fmt::format("{} is folded into the weights", adapters[i]));
  }
  return notes;
}

void initialize_adapters(const config::RunConfig& config, parallel::Replica& replica, model::Stage& model) {
  if (replica.adapters.empty()) return;
  model::initialize(replica.adapters, config.trainer.seed);
  for (const std::size_t whole : {std::size_t{0}, replica.adapters.size() - 1}) {
    if (!replica.adapters[whole]) continue;
    const std::size_t unit = original_of(config.model, replica, whole);
    replica.store->open(unit, {});
    const at::Tensor& original = replica.units[unit]->weight(0);
    replica.adapters[whole]->exact().narrow(0, 0, original.numel()).copy_(original.reshape({-1}));
    replica.adapters[whole]->refresh_weights();
    replica.store->close(unit, {});
  }
  model.reset_magnitudes();
  if (!config.lora.adapters.empty()) hub::PeftAdapter(config.lora.adapters.back()).load(replica.adapters);
}

}  // namespace lockstep::train
