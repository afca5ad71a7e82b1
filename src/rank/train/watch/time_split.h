// Counts a rank's time by part, on its device's clock.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <optional>
#include <string_view>

#include "journal/page.h"
#include "journal/parts.h"
#include "rank/kernels/stopwatch.h"
#include "rank/train/watch/timeline.h"

namespace lockstep::train {

// What a rank does in this phase, as far as nobody is waited for.
journal::Part part_of(journal::Phase phase);

// The thread that runs the steps, the device's current stream.
class TimeSplit {
 public:
  // timeline: is told too; null: nobody is.
  TimeSplit(at::Device device, std::shared_ptr<Timeline> timeline);
  // From here on time counts for `part`.
  void enter(journal::Part part);
  // For a graph that is being recorded: counts each time it is replayed.
  void record(journal::Part part);
  void end_of_recording() { recorded_.reset(); }
  // Waiting for a collective is communication, whatever the part (comm::Ledger::on_wait).
  void wait(bool begins, std::string_view kind);
  // f64 [part_count] on the device, so far.
  const at::Tensor& seconds() const { return stopwatch_->seconds(); }

 private:
  void mark(journal::Part part);

  std::unique_ptr<kernels::Stopwatch> stopwatch_;
  std::shared_ptr<Timeline> timeline_;
  journal::Part part_ = journal::Part::other;
  std::optional<journal::Part> recorded_;  // where a graph is being recorded: the part that it is in there
  bool begun_ = false;
};

}  // namespace lockstep::train
