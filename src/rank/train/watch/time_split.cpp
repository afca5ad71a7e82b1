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

TimeSplit::TimeSplit(at::Device device, std::shared_ptr<Timeline> timeline)
    : stopwatch_(kernels::make_stopwatch(device, static_cast<int>(journal::part_count))), timeline_(std::move(timeline)) {}

void TimeSplit::mark(Part part) {
  stopwatch_->enter(static_cast<int>(part));
  if (timeline_) timeline_->begin("step", journal::name_of(part));
}

void TimeSplit::enter(Part part) {
  if (begun_ && part == part_) return;
  begun_ = true;
  part_ = part;
  mark(part);
}

void TimeSplit::record(Part part) {
  recorded_ = part;
  mark(part);
}

void TimeSplit::wait(bool begins, std::string_view kind) {
  const Part part = recorded_.value_or(part_);
  if (!begun_ && !recorded_) return;
  if (part != Part::communication) stopwatch_->enter(static_cast<int>(begins ? Part::communication : part));
  if (timeline_) begins ? timeline_->begin("waits", kind) : timeline_->end("waits");
}

}  // namespace lockstep::train
