// What a rank holds of units that are cut between ranks: the first one, whose share is the largest.
#pragma once

#include "layout/memory/memory.h"
#include "layout/spread/placement.h"

namespace lockstep::layout {

struct ShardedMemory {
  std::vector<PartBytes> parts = {};   // what stands before gradients are planned
  std::int64_t gradient_elements = 0;  // of memory that micro-batches add to
  std::int64_t of_them_in_slots = 0;
  std::int64_t sum_elements = 0;             // kept beside them
  std::int64_t in_flight = 0;                // elements of units whose gradients are reduced at the same time, padding included
  std::int64_t by_matrix = 0;                // elements of the largest unit with matrices that are updated whole
  std::int64_t shares_between_replicas = 0;  // elements of the shares that replicas of them sum at the same time
};
// units: as held_units() gives them, adapters behind the model's.
ShardedMemory sharded_memory(const std::vector<HeldUnit>& units, const config::RunConfig& config, int sharing);

}  // namespace lockstep::layout
