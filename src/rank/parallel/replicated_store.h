// The store of replicas: every rank holds every unit whole and updates all of it. What is counted once is dealt out by units.
#pragma once

#include "rank/parallel/rank_store.h"

namespace lockstep::parallel {

// Those of the units that one of so many ranks counts: whole ones to the rank that has counted least so far, so that a unit's sum is made
// by one rank, in one order.
std::vector<model::HeldSlice> dealt_out(std::span<const model::HeldSlice> units, int rank, int ranks);

class ReplicatedStore final : public RankStore {
 public:
  using RankStore::RankStore;

  // This rank's place among the replicas; one of one until it is told.
  void deal(int rank, int ranks);

  std::span<const model::HeldSlice> counts() const override { return counts_; }
  void look_again() override;

 private:
  int rank_ = 0, ranks_ = 1;
  std::vector<model::HeldSlice> counts_;
};

}  // namespace lockstep::parallel
