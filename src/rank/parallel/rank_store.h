// A store of units in this rank's memory that knows of other ranks.
#pragma once

#include <functional>

#include "rank/comm/comm.h"
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

  // Collective. What this rank updates is written, by an optimizer or from a file: before units are opened again, all ranks have it.
  virtual void updated() {}
  // Collective, after that, from the first unit to the last: numbers of the units up to this one stay as they are until the next step has
  // been taken, so that others may have them already.
  virtual void final_through(std::size_t /*unit*/) {}
  // Collective over the ranks that hold units between them, where units are held in shards: whole becomes what they bring, by shard.
  virtual void gather(const at::Tensor& whole, const at::Tensor& mine) const { whole.copy_(mine); }
  // Who holds the same shards as this rank, itself included; null where units are not held in shards.
  virtual const comm::Group* replicas() const { return nullptr; }
  // Whether ranks must open units in the same order to find them whole; false: each may for itself.
  virtual bool opens_together() const { return false; }
  // Micro-steps as recordings, where ranks open units together. What is gathered when, and what is added to sums, follows from a
  // micro-step's place in its step and from what the one before left behind: a recording is of both.
  // record(): `recording` runs as a micro-step of this place; then the store is as before, since nothing has happened. What is recorded
  // ends with settle(): nothing is under way.
  virtual void record(const model::Micro&, const std::function<void()>& recording) { recording(); }
  virtual void settle() {}
  // Whether a recording of this place begins where the store is now; the same answer on all ranks.
  virtual bool replays(const model::Micro&) { return true; }
  // Collective. Launches one; then the store is as the recorded micro-step left it.
  virtual void replay(const model::Micro&, const std::function<void()>& launch) { launch(); }
  // While it holds, nothing is exchanged, and numbers mean nothing: a micro-step is tried for its memory alone.
  virtual void rehearse(bool) {}
};

}  // namespace lockstep::parallel
