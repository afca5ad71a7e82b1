// A mark where the part changes, and none where it stays: each costs a kernel on a GPU.
#include "rank/train/watch/time_split.h"

namespace lockstep::train {

using journal::Part;
using journal::Phase;

Part part_of(Phase phase) {
  switch (phase) {
    case Phase::reading_data: return Part::data;
    case Phase::forward: return Part::forward;
    case Phase::backward: return Part::backward;
    case Phase::reducing: return Part::communication;
    case Phase::updating: return Part::optimizer;
    case Phase::saving: return Part::checkpoint;
    default: return Part::other;
  }
}

TimeSplit::TimeSplit(at::Device device) : stopwatch_(kernels::make_stopwatch(device, static_cast<int>(journal::part_count))) {}

void TimeSplit::enter(Part part) {
  if (begun_ && part == part_) return;
  begun_ = true;
  part_ = part;
  stopwatch_->enter(static_cast<int>(part));
}

void TimeSplit::wait(bool begins) {
  if (begun_ && part_ != Part::communication) stopwatch_->enter(static_cast<int>(begins ? Part::communication : part_));
}

}  // namespace lockstep::train
