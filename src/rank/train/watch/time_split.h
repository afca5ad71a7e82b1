// Counts a rank's time by part, on its device's clock.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>

#include "journal/page.h"
#include "journal/parts.h"
#include "rank/kernels/stopwatch.h"

namespace lockstep::train {

// What a rank does in this phase, as far as nobody is waited for.
journal::Part part_of(journal::Phase phase);

// The thread that runs the steps, the device's current stream.
class TimeSplit {
 public:
  explicit TimeSplit(at::Device device);
  // From here on time counts for `part`.
  void enter(journal::Part part);
  // For a graph that is being recorded: counts each time it is replayed.
  void record(journal::Part part) { stopwatch_->enter(static_cast<int>(part)); }
  // Waiting for a collective is communication, whatever the part (comm::Ledger::on_wait).
  void wait(bool begins);
  // f64 [part_count] on the device, so far.
  const at::Tensor& seconds() const { return stopwatch_->seconds(); }

 private:
  std::unique_ptr<kernels::Stopwatch> stopwatch_;
  journal::Part part_ = journal::Part::other;
  bool begun_ = false;
};

}  // namespace lockstep::train
