// Every rank holds the whole model: making the units, giving all ranks rank 0's weights, proving that they stay equal.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <optional>
#include <vector>

#include "rank/comm/comm.h"
#include "rank/parallel/replicated_store.h"

namespace lockstep::parallel {

// The model's units in forward order, and the one buffer that all gradients share, in the order backward completes them.
// Either the units are trained, or they are frozen and the adapters beside them are trained.
struct Replica {
  std::vector<std::unique_ptr<model::Unit>> units;
  std::vector<std::unique_ptr<model::Unit>> adapters;  // empty, or one a unit, null where it has none
  at::Tensor gradients;
  std::unique_ptr<ReplicatedStore> store;  // the layers' door to them

  std::vector<model::Unit*> in_forward_order() const;
  std::vector<model::Unit*> adapters_in_forward_order() const;
  std::vector<model::Unit*> trained_in_forward_order() const;
  std::int64_t parameters() const;
  std::int64_t trained_parameters() const;
};
// Gradients anew, all zero, in this type.
void hold_gradients(Replica& replica, at::ScalarType type);
Replica make_replica(std::vector<model::UnitSpec> specs, const model::UnitStorage& storage);
// Frozen units, and adapters that are trained.
Replica make_adapted_replica(std::vector<model::UnitSpec> specs, std::vector<std::optional<model::UnitSpec>> adapters,
                             model::UnitStorage storage);

// Collective. Afterwards every rank has rank 0's weights.
void broadcast_weights(const comm::Group& group, const Replica& replica);

// Collective. Throws on every rank, naming the unit and the ranks, if weights are not the same bits everywhere.
void verify_equal(const comm::Group& group, const Replica& replica, std::int64_t step);
// Collective. The same for what is not trained, quantized or not; it never changes, so once at the start.
void verify_frozen_equal(const comm::Group& group, const Replica& replica);

}  // namespace lockstep::parallel
