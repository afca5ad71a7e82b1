// Whole units to the rank that has counted least so far, so that a unit's sum is made by one rank, in one order.
#include "rank/parallel/replicated_store.h"

#include "layout/spread/placement.h"

namespace lockstep::parallel {

void ReplicatedStore::deal(int rank, int ranks) {
  rank_ = rank;
  ranks_ = ranks;
  look_again();
}

void ReplicatedStore::look_again() {
  WholeStore::look_again();
  std::vector<layout::PlacedUnit> units;
  for (const model::HeldSlice& slice : updates()) units.push_back({.elements = slice.count, .matrices = {0}});
  counts_.clear();
  const std::vector<std::vector<layout::Slice>> by_rank = layout::owned_by_rank(units, ranks_);
  for (const layout::Slice& mine : by_rank[static_cast<std::size_t>(rank_)]) counts_.push_back(updates()[mine.unit]);
}

}  // namespace lockstep::parallel
