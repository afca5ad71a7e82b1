// A store of units in this rank's memory that knows of other ranks.
#pragma once

#include "rank/model/weights/whole_store.h"

namespace lockstep::parallel {

class RankStore : public model::WholeStore {
 public:
  using WholeStore::WholeStore;

  // Whole units' gradients, as micro-batches add to them: trained ones, in the order that backward completes them.
  std::vector<model::HeldSlice> accumulates() const {
    std::vector<model::HeldSlice> whole(updates().begin(), updates().end());
    for (model::HeldSlice& slice : whole) {
      slice.begin = 0;
      slice.count = unit(slice.unit).elements();
      slice.gradients = unit(slice.unit).gradients();
    }
    return whole;
  }

  // Collective. What this rank updates was written, by an optimizer or from a file: before units are opened again, all ranks have it.
  virtual void updated() {}
  // Whether ranks must open units in the same order to find them whole; false: each may for itself.
  virtual bool opens_together() const { return false; }
  // While it holds, nothing is exchanged, and numbers mean nothing: a micro-step is tried for its memory alone.
  virtual void rehearse(bool) {}
};

}  // namespace lockstep::parallel
