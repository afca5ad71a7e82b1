// Breaks this rank on purpose, for tests: LOCKSTEP_TEST_FAULT="rank=1 step=5 phase=forward action=kill". With once=FILE it strikes only
// while that file is not there, and makes it. "action=slow_disk ms=200" lets every file of a checkpoint take so long; "action=slow ms=50
// step=1 until=900" makes a phase of each of these steps longer.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "base/files.h"
#include "rank/comm/comm.h"
#include "journal/page.h"

namespace lockstep::train {

class Faults {
 public:
  static Faults from_environment(int rank);

  // Called at every change of phase; does what the test asked for when the place and the step are right.
  void at(journal::Phase phase, std::int64_t step, const comm::Group& group) const;
  // True when this step's loss is to be made NaN.
  bool spoils_loss(std::int64_t step) const;
  // For World::Options: an NCCL that fails, when this rank's is to (action=nccl).
  std::function<std::shared_ptr<comm::Transport>()> broken_nccl() const;
  // True when the device's progress is not to be seen (action=hide_progress).
  bool hides_progress() const { return order_ && order_->action == "hide_progress"; }
  // What checkpoints are written to: a slow disk where the test asked for one (action=slow_disk).
  base::FileSystem& files() const;  // lives as long as this and its copies
  // True when this step is to leave the rank with weights of its own.
  bool drifts(std::int64_t step) const { return order_ && order_->action == "drift" && step == order_->step; }
  // True when a micro-batch of so many samples is to find no memory (action=memory samples=N).
  bool refuses(std::int64_t samples) const { return order_ && order_->action == "memory" && samples > order_->samples; }

 private:
  struct Order {
    std::int64_t step = 1;
    std::int64_t last_step = 1;  // nan and slow last this long
    std::string phase = "forward";
    std::string action;
    std::int64_t samples = 0;  // memory: what still fits
    double seconds = 3600;     // stall, deep_sleep: how long
    std::int64_t ms = 0;       // slow_disk, slow
    std::string once;
  };
  std::optional<Order> order_;
  std::shared_ptr<base::FileSystem> slow_files_;
};

}  // namespace lockstep::train
