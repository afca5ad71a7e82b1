// Gradients become sums over ranks: what a micro-step has to call, however units lie.
#pragma once

#include <functional>

#include "rank/comm/comm.h"

namespace lockstep::parallel {

// Collective, all of it, over the ranks whose losses add up. One thread.
class Exchange {
 public:
  virtual ~Exchange() = default;

  // Before the last micro-step's backward: from now on what is complete is reduced at once.
  virtual void arm(const comm::Group& group) = 0;
  // In place of arm(), where all gradients stand already.
  virtual void start_all(const comm::Group& group) = 0;
  // In place of a backward that announces its gradients: launches a recorded one, which has a finish() in it.
  virtual void replay(const comm::Group& group, const std::function<void()>& launch) = 0;
  // Starts what is left and waits for all: gradients of what this rank updates are sums over all ranks. A parameter without a gradient is
  // an error that names it, unless parallel.find_unused_parameters says that this is meant.
  virtual void finish(const comm::Group& group) = 0;
};

}  // namespace lockstep::parallel
