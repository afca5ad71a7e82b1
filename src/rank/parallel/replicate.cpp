// Replicated weights: one gradient buffer, one broadcast, one fingerprint a unit.
#include "rank/parallel/replicate.h"

#include <c10/core/CachingDeviceAllocator.h>

#include "base/error.h"
#include "base/text.h"
#include "rank/model/weights/quantized.h"
#include "rank/parallel/base_fingerprint.h"
#include "rank/parallel/replicated_store.h"

namespace lockstep::parallel {
namespace {

// [2] of everything a frozen unit holds: dense numbers, codes and their scales.
at::Tensor frozen_fingerprint(const model::Unit& unit) {
  if (unit.shard()) return sums_of_bits(unit.weights_to_gather());
  at::Tensor sums = sums_of_bits(unit.weights());
  for (std::size_t leaf = 0; leaf < unit.spec().leaves.size(); ++leaf) {
    const model::QuantizedMatrix* matrix = unit.quantized(leaf);
    for (std::size_t piece = 0; matrix != nullptr && piece < unit.spec().leaves[leaf].pieces.size(); ++piece) {
      const kernels::QuantizedBlocks& blocks = matrix->piece(piece);
      for (const at::Tensor& part : {blocks.codes, blocks.scales, blocks.outer, blocks.map}) {
        if (part.defined()) sums = sums.mul(31).add(sums_of_bits(part));
      }
    }
  }
  return sums;
}

// Ranks whose fingerprint of some unit is not the first rank's, and those units.
struct Difference {
  int first = 0;
  std::vector<std::string> ranks, units;
};

// Collective.
Difference compare(const comm::Group& group, const std::vector<std::string>& units, const std::vector<at::Tensor>& mine,
                   std::string_view what) {
  const at::Tensor numbers = at::cat(mine);
  const at::Tensor all = at::empty({group.size() * numbers.numel()}, numbers.options());
  group.all_gather(all, numbers, what).wait();
  const at::Tensor rows = all.cpu().view({group.size(), static_cast<std::int64_t>(units.size()), 2});
  Difference found{.first = group.in_world(0), .ranks = {}, .units = {}};
  const auto note = [](std::vector<std::string>& list, const std::string& name) {
    if (std::find(list.begin(), list.end(), name) == list.end()) list.push_back(name);
  };
  for (std::size_t u = 0; u < units.size(); ++u) {
    for (int rank = 1; rank < group.size(); ++rank) {
      const auto at = static_cast<std::int64_t>(u);
      if (rows[rank][at].equal(rows[0][at])) continue;
      note(found.units, units[u]);
      note(found.ranks, std::to_string(group.in_world(rank)));
    }
  }
  return found;
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
                                                       GradientMemory& gradients) {
  std::int64_t end = 0;
  for (const auto& spec : specs) end += spec ? model::flat_elements(*spec) : 0;
  gradients.memory = at::zeros({end}, at::TensorOptions().device(storage.device).dtype(storage.gradient_dtype));
  std::vector<std::unique_ptr<model::Unit>> units;
  for (auto& spec : specs) {
    if (!spec) {
      units.push_back(nullptr);
      continue;
    }
    const std::int64_t elements = model::flat_elements(*spec);
    storage.gradient_memory = gradients.memory.narrow(0, end - elements, elements);
    units.push_back(std::make_unique<model::Unit>(std::move(*spec), storage));
    end -= elements;
    gradients.tenants.push_back({units.back().get(), end, elements});
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

std::int64_t Replica::parameters() const { return count_parameters(in_forward_order()); }

std::int64_t Replica::trained_parameters() const { return count_parameters(trained_in_forward_order()); }

std::int64_t Replica::gradient_elements() const {
  std::int64_t elements = 0;
  for (const GradientMemory& home : gradients) elements += home.memory.numel();
  return elements;
}

namespace {

// Sums `of` the share of every unit that keeps one beside its gradients.
template <typename Of>
std::int64_t over_shares(const Replica& replica, const Of& of) {
  std::int64_t sum = 0;
  for (const model::Unit* unit : replica.trained_in_forward_order()) {
    const at::Tensor& share = unit->summed_gradients();
    if (!share.storage().is_alias_of(unit->gradients_to_sum().storage())) sum += of(share);
  }
  return sum;
}

}  // namespace

std::int64_t Replica::sum_elements() const {
  return over_shares(*this, [](const at::Tensor& share) { return share.numel(); });
}

std::int64_t Replica::sum_bytes() const {
  return over_shares(*this, [](const at::Tensor& share) { return static_cast<std::int64_t>(share.nbytes()); });
}

void Replica::zero_gradients() const {
  for (const GradientMemory& home : gradients) home.memory.zero_();
}

namespace {

Replica with_store(Replica replica, ReplicaSeat seat) {
  auto store = std::make_unique<ReplicatedStore>(replica.in_forward_order(), replica.adapters_in_forward_order());
  store->deal(seat.rank, seat.ranks);
  replica.store = std::move(store);
  return replica;
}

std::vector<std::unique_ptr<model::Unit>> make_frozen(std::vector<model::UnitSpec> specs, const model::UnitStorage& storage) {
  std::vector<std::unique_ptr<model::Unit>> units;
  for (model::UnitSpec& spec : specs) units.push_back(std::make_unique<model::Unit>(std::move(spec), storage));
  return units;
}

}  // namespace

Replica make_replica(std::vector<model::UnitSpec> specs, const model::UnitStorage& storage, ReplicaSeat seat) {
  Replica replica;
  if (storage.trainable) {
    std::vector<std::optional<model::UnitSpec>> trained;
    for (model::UnitSpec& spec : specs) trained.emplace_back(std::move(spec));
    replica.units = make_trained(std::move(trained), storage, replica.gradients.emplace_back());
  } else {
    replica.units = make_frozen(std::move(specs), storage);
  }
  return with_store(std::move(replica), seat);
}

Replica make_adapted_replica(std::vector<model::UnitSpec> specs, std::vector<std::optional<model::UnitSpec>> adapters,
                             model::UnitStorage storage, ReplicaSeat seat) {
  Replica replica;
  storage.trainable = false;
  replica.units = make_frozen(std::move(specs), storage);
  add_adapters(replica, std::move(adapters), storage);
  return with_store(std::move(replica), seat);
}

void add_adapters(Replica& replica, std::vector<std::optional<model::UnitSpec>> adapters, model::UnitStorage storage) {
  storage.trainable = true;
  storage.quantization = model::Quantization::none;
  replica.adapters = make_trained(std::move(adapters), storage, replica.gradients.emplace_back());
}

void hold_gradients(Replica& replica, at::ScalarType type, at::ScalarType sums) {
  if (replica.gradient_type() == type && type == sums) return;
  // First what there is goes, so that memory need not hold both.
  std::vector<std::int64_t> elements;
  const auto options = replica.gradients.front().memory.options().dtype(type);
  for (GradientMemory& home : replica.gradients) {
    elements.push_back(home.memory.numel());
    home.memory = at::Tensor();
    for (const auto& tenant : home.tenants) tenant.unit->place_gradients({});
  }
  if (!options.device().is_cpu()) at::getDeviceAllocator(options.device().type())->emptyCache();
  for (std::size_t i = 0; i < elements.size(); ++i) {
    GradientMemory& home = replica.gradients[i];
    home.memory = at::zeros({elements[i]}, options);
    for (const auto& tenant : home.tenants) tenant.unit->place_gradients(home.memory.narrow(0, tenant.begin, tenant.count), sums);
  }
  replica.store->look_again();
}

void broadcast_weights(const comm::Group& group, const Replica& replica) {
  for (const model::Unit* unit : replica.trained_in_forward_order()) {
    group.broadcast(unit->exact(), 0, fmt::format("weights of {}", unit->name())).wait();
    unit->refresh_weights();
  }
}

void verify_equal(const comm::Group& group, const Replica& replica, std::int64_t step) {
  if (group.size() == 1) return;
  std::vector<std::string> names;
  std::vector<at::Tensor> fingerprints;
  const std::span<const model::HeldSlice> updates = replica.store->updates();
  for (auto slice = updates.rbegin(); slice != updates.rend(); ++slice) {  // in forward order
    names.push_back(replica.store->spec(slice->unit).name);
    fingerprints.push_back(sums_of_bits(slice->exact));
  }
  const Difference found = compare(group, names, fingerprints, "fingerprints of weights");
  if (found.ranks.empty()) return;
  throw base::run_error(
      "parallel",
      "step {}: the weights of rank {} differ from rank {}'s, first in {}. All ranks must hold the same weights; go back to a "
      "checkpoint from before with --resume PATH, and check that rank's device.",
      step, base::join(found.ranks, ", "), found.first, found.units.front());
}

void verify_frozen_equal(const comm::Group& group, const Replica& replica) {
  if (group.size() == 1) return;
  std::vector<std::string> names;
  std::vector<at::Tensor> fingerprints;
  for (const model::Unit* unit : replica.in_forward_order()) {
    if (unit->trainable()) continue;
    names.push_back(unit->name());
    fingerprints.push_back(frozen_fingerprint(*unit));
  }
  if (names.empty()) return;
  const Difference found = compare(group, names, fingerprints, "fingerprints of frozen weights");
  if (found.ranks.empty()) return;
  constexpr std::size_t most_named = 8;
  const std::size_t named = std::min(found.units.size(), most_named);
  throw base::run_error(
      "parallel",
      "the frozen weights of rank {} differ from rank {}'s, in {}{}. All ranks must build on the same base model: compare the "
      "files of model.path on their machines.",
      base::join(found.ranks, ", "), found.first, base::join(std::span(found.units).first(named), ", "),
      found.units.size() > named ? fmt::format(" and {} more units", found.units.size() - named) : "");
}

}  // namespace lockstep::parallel
