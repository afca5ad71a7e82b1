// The units of a run as a rank holds them, whole or in shards: making them, giving all ranks rank 0's weights, proving that they stay
// equal.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <optional>
#include <vector>

#include "rank/comm/comm.h"
#include "rank/comm/mesh.h"
#include "rank/parallel/exchange.h"
#include "rank/parallel/rank_store.h"
#include "layout/spread/placement.h"

namespace lockstep::parallel {

// Memory that micro-batches add their gradients to, and whose those are. Units that take it in turns begin at the same place.
struct GradientMemory {
  struct Tenant {
    model::Unit* unit;
    std::int64_t begin, count;
  };
  at::Tensor memory;
  std::vector<Tenant> tenants;
  bool in_turns = false;
};

// The model's units in forward order. Either they are trained, or they are frozen and the adapters beside them are trained.
struct Replica {
  std::vector<std::unique_ptr<model::Unit>> units;
  std::vector<std::unique_ptr<model::Unit>> adapters;  // empty, or one a unit, null where it has none
  std::vector<GradientMemory> gradients;               // whole units: one buffer, in the order backward completes them
  std::unique_ptr<RankStore> store;                    // the layers' door to them
  Exchange* exchange = nullptr;                        // of units in shards: the store's own; null: they are whole

  std::vector<model::Unit*> in_forward_order() const;
  std::vector<model::Unit*> adapters_in_forward_order() const;
  std::vector<model::Unit*> trained_in_forward_order() const;
  std::int64_t parameters() const;
  std::int64_t trained_parameters() const;
  std::int64_t gradient_elements() const;
  // Shares kept beside gradients: sums over micro-batches, where gradients are cut. [room] each.
  std::int64_t sum_elements() const;
  std::int64_t sum_bytes() const;
  at::ScalarType gradient_type() const { return gradients.front().memory.scalar_type(); }
  void zero_gradients() const;
};
// Gradients anew, all zero. type: what micro-batches add to. sums: what shards of them are added up in where those are reduced one by one.
void hold_gradients(Replica& replica, at::ScalarType type, at::ScalarType sums);
// Whole units on every rank. seat: among the ranks that hold the same.
struct ReplicaSeat {
  int rank = 0, ranks = 1;
};
Replica make_replica(std::vector<model::UnitSpec> specs, const model::UnitStorage& storage, ReplicaSeat seat = {});
// Frozen units, and adapters that are trained.
Replica make_adapted_replica(std::vector<model::UnitSpec> specs, std::vector<std::optional<model::UnitSpec>> adapters,
                             model::UnitStorage storage, ReplicaSeat seat = {});
// Units in shards along the mesh's shard axis; adapters beside frozen ones are whole, and there are none where the units are trained.
Replica make_sharded(std::vector<model::UnitSpec> specs, std::vector<std::optional<model::UnitSpec>> adapters,
                     const model::UnitStorage& storage, const comm::Mesh& mesh, const layout::Placement& placement,
                     const config::RunConfig& config);
// Whole and trained, beside units that are there.
void add_adapters(Replica& replica, std::vector<std::optional<model::UnitSpec>> adapters, model::UnitStorage storage);

// Collective. Afterwards every rank has rank 0's weights.
void broadcast_weights(const comm::Group& group, const Replica& replica);

// Collective. Throws on every rank, naming the unit and the ranks, if weights are not the same bits everywhere.
void verify_equal(const comm::Group& group, const Replica& replica, std::int64_t step);
// Collective. The same for what is not trained, quantized or not; it never changes, so once at the start.
void verify_frozen_equal(const comm::Group& group, const Replica& replica);

}  // namespace lockstep::parallel
