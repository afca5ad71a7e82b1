// The store of replicas: every rank holds every unit whole and updates all of it. What is counted once is dealt out by units.
#pragma once

#include "rank/model/weights/whole_store.h"

namespace lockstep::parallel {

class ReplicatedStore final : public model::WholeStore {
 public:
  using WholeStore::WholeStore;

  // This rank's place among the replicas; one of one until it is told.
  void deal(int rank, int ranks);

  std::span<const model::HeldSlice> counts() const override { return counts_; }
  void look_again() override;

 private:
  int rank_ = 0, ranks_ = 1;
  std::vector<model::HeldSlice> counts_;
};

}  // namespace lockstep::parallel
