// Replicated weights: one gradient buffer, one broadcast, one fingerprint a unit.
#include "rank/parallel/replicate.h"

#include "base/error.h"
#include "base/text.h"

namespace lockstep::parallel {
namespace {

// Two sums over the bits of a unit's weights. A drift of the kind that happens (a missed or doubled update) changes them.
at::Tensor fingerprint(const model::Unit& unit) {
  const at::Tensor bits = unit.exact().view(at::kInt);
  return at::cat({bits.sum(at::kLong).view({1}), bits.slice(0, 0, bits.numel(), 3).sum(at::kLong).view({1})});
}

}  // namespace

std::vector<model::Unit*> Replica::in_forward_order() const {
  std::vector<model::Unit*> order;
  for (const auto& unit : units) order.push_back(unit.get());
  return order;
}

std::vector<model::Unit*> Replica::in_backward_order() const {
  std::vector<model::Unit*> order = in_forward_order();
  std::reverse(order.begin(), order.end());
  return order;
}

std::int64_t Replica::parameters() const {
  std::int64_t count = 0;
  for (const auto& unit : units) {
    for (const model::LeafSpec& leaf : unit->spec().leaves) count += leaf.elements();
  }
  return count;
}

Replica make_replica(std::vector<model::UnitSpec> specs, model::UnitStorage storage) {
  Replica replica;
  std::int64_t total = 0;
  for (const model::UnitSpec& spec : specs) total += model::flat_elements(spec);
  if (storage.trainable) replica.gradients = at::zeros({total}, at::TensorOptions().device(storage.device).dtype(storage.gradient_dtype));
  std::int64_t end = total;  // the first unit completes last
  for (model::UnitSpec& spec : specs) {
    const std::int64_t elements = model::flat_elements(spec);
    if (storage.trainable) storage.gradient_memory = replica.gradients.narrow(0, end - elements, elements);
    replica.units.push_back(std::make_unique<model::Unit>(std::move(spec), storage));
    end -= elements;
  }
  return replica;
}

void broadcast_weights(const comm::Group& group, const Replica& replica) {
  for (const auto& unit : replica.units) {
    group.broadcast(unit->exact(), 0, fmt::format("weights of {}", unit->name())).wait();
    unit->refresh_weights();
  }
}

void verify_equal(const comm::Group& group, const Replica& replica, std::int64_t step) {
  std::vector<at::Tensor> mine;
  for (const auto& unit : replica.units) mine.push_back(fingerprint(*unit));
  const at::Tensor numbers = at::cat(mine);
  const at::Tensor all = at::empty({group.size() * numbers.numel()}, numbers.options());
  group.all_gather(all, numbers, "fingerprints of weights").wait();
  const at::Tensor rows = all.cpu().view({group.size(), numbers.numel()});
  std::vector<std::string> differing_ranks;
  std::string unit_name;
  for (int rank = 1; rank < group.size(); ++rank) {
    for (std::size_t u = 0; u < replica.units.size(); ++u) {
      const auto at = static_cast<std::int64_t>(2 * u);
      if (rows[rank].narrow(0, at, 2).equal(rows[0].narrow(0, at, 2))) continue;
      if (unit_name.empty()) unit_name = replica.units[u]->name();
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
