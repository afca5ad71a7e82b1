// Replicated weights: one gradient buffer, one broadcast, one fingerprint a unit.
#include "rank/parallel/replicate.h"

#include <c10/core/CachingDeviceAllocator.h>

#include "base/error.h"
#include "base/text.h"

namespace lockstep::parallel {
namespace {

// Two sums over the bits of a unit's weights. A drift of the kind that happens (a missed or doubled update) changes them.
at::Tensor fingerprint(const model::Unit& unit) {
  const at::Tensor bits = unit.exact().view(at::kInt);
  return at::cat({bits.sum(at::kLong).view({1}), bits.slice(0, 0, bits.numel(), 3).sum(at::kLong).view({1})});
}

std::vector<model::Unit*> pointers(const std::vector<std::unique_ptr<model::Unit>>& units) {
  std::vector<model::Unit*> all;
  for (const auto& unit : units) all.push_back(unit.get());
  return all;
}

std::int64_t count_parameters(const std::vector<model::Unit*>& units) {
  std::int64_t count = 0;
  for (const model::Unit* unit : units) {
    for (const model::LeafSpec& leaf : unit->spec().leaves) count += leaf.elements();
  }
  return count;
}

// Units whose gradients lie in one buffer: the first unit completes last, so it comes last there.
std::vector<std::unique_ptr<model::Unit>> make_trained(std::vector<std::optional<model::UnitSpec>> specs, model::UnitStorage storage,
                                                       at::Tensor& gradients) {
  std::int64_t end = 0;
  for (const auto& spec : specs) end += spec ? model::flat_elements(*spec) : 0;
  gradients = at::zeros({end}, at::TensorOptions().device(storage.device).dtype(storage.gradient_dtype));
  std::vector<std::unique_ptr<model::Unit>> units;
  for (auto& spec : specs) {
    if (!spec) {
      units.push_back(nullptr);
      continue;
    }
    const std::int64_t elements = model::flat_elements(*spec);
    storage.gradient_memory = gradients.narrow(0, end - elements, elements);
    units.push_back(std::make_unique<model::Unit>(std::move(*spec), storage));
    end -= elements;
  }
  return units;
}

}  // namespace

std::vector<model::Unit*> Replica::in_forward_order() const { return pointers(units); }

std::vector<model::Unit*> Replica::adapters_in_forward_order() const { return pointers(adapters); }

std::vector<model::Unit*> Replica::trained_in_forward_order() const {
  std::vector<model::Unit*> trained;
  for (const auto* list : {&units, &adapters}) {
    for (const auto& unit : *list) {
      if (unit && unit->trainable()) trained.push_back(unit.get());
    }
  }
  return trained;
}

std::vector<model::Unit*> Replica::trained_in_backward_order() const {
  std::vector<model::Unit*> order = trained_in_forward_order();
  std::reverse(order.begin(), order.end());
  return order;
}

std::int64_t Replica::parameters() const { return count_parameters(in_forward_order()); }

std::int64_t Replica::trained_parameters() const { return count_parameters(trained_in_forward_order()); }

Replica make_replica(std::vector<model::UnitSpec> specs, const model::UnitStorage& storage) {
  Replica replica;
  if (!storage.trainable) {
    for (model::UnitSpec& spec : specs) replica.units.push_back(std::make_unique<model::Unit>(std::move(spec), storage));
    return replica;
  }
  std::vector<std::optional<model::UnitSpec>> trained;
  for (model::UnitSpec& spec : specs) trained.emplace_back(std::move(spec));
  replica.units = make_trained(std::move(trained), storage, replica.gradients);
  return replica;
}

Replica make_adapted_replica(std::vector<model::UnitSpec> specs, std::vector<std::optional<model::UnitSpec>> adapters,
                             model::UnitStorage storage) {
  storage.trainable = false;
  Replica replica = make_replica(std::move(specs), storage);
  storage.trainable = true;
  storage.quantization = model::Quantization::none;
  replica.adapters = make_trained(std::move(adapters), storage, replica.gradients);
  return replica;
}

void hold_gradients(Replica& replica, at::ScalarType type) {
  if (replica.gradients.scalar_type() == type) return;
  const auto options = replica.gradients.options().dtype(type);
  const std::int64_t elements = replica.gradients.numel();
  const std::vector<model::Unit*> units = replica.trained_in_backward_order();
  // First what there is goes, so that memory need not hold both.
  replica.gradients = at::Tensor();
  for (model::Unit* unit : units) unit->place_gradients({});
  if (!options.device().is_cpu()) at::getDeviceAllocator(options.device().type())->emptyCache();
  replica.gradients = at::zeros({elements}, options);
  std::int64_t begin = 0;
  for (model::Unit* unit : units) {
    unit->place_gradients(replica.gradients.narrow(0, begin, unit->elements()));
    begin += unit->elements();
  }
}

void broadcast_weights(const comm::Group& group, const Replica& replica) {
  for (const model::Unit* unit : replica.trained_in_forward_order()) {
    group.broadcast(unit->exact(), 0, fmt::format("weights of {}", unit->name())).wait();
    unit->refresh_weights();
  }
}

void verify_equal(const comm::Group& group, const Replica& replica, std::int64_t step) {
  const std::vector<model::Unit*> units = replica.trained_in_forward_order();
  std::vector<at::Tensor> mine;
  for (const model::Unit* unit : units) mine.push_back(fingerprint(*unit));
  const at::Tensor numbers = at::cat(mine);
  const at::Tensor all = at::empty({group.size() * numbers.numel()}, numbers.options());
  group.all_gather(all, numbers, "fingerprints of weights").wait();
  const at::Tensor rows = all.cpu().view({group.size(), numbers.numel()});
  std::vector<std::string> differing_ranks;
  std::string unit_name;
  for (int rank = 1; rank < group.size(); ++rank) {
    for (std::size_t u = 0; u < units.size(); ++u) {
      const auto at = static_cast<std::int64_t>(2 * u);
      if (rows[rank].narrow(0, at, 2).equal(rows[0].narrow(0, at, 2))) continue;
      if (unit_name.empty()) unit_name = units[u]->name();
      differing_ranks.push_back(std::to_string(rank));
      break;
    }
  }
  if (differing_ranks.empty()) return;
  throw base::run_error(
      "parallel",
      "step {}: the weights of rank {} differ from rank 0's, first in {}. All ranks must hold the same weights; go back to a "
      "checkpoint from before with --resume PATH, and check that rank's device.",
      step, base::join(differing_ranks, ", "), unit_name);
}

}  // namespace lockstep::parallel
