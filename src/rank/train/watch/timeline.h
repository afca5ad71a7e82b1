// What a rank does at which moment, by its device's clock: parts of a step, blocks, waits, and what links do meanwhile. CUDA graphs
// included.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "base/mutex.h"
#include "rank/kernels/progress.h"
#include "rank/kernels/tape.h"

namespace lockstep::train {

// Any thread; a call counts for the device's current stream. A lane does one thing at a time.
class Timeline {
 public:
  explicit Timeline(at::Device device);
  void begin(std::string_view lane, std::string_view name);  // and ends what the lane is at
  void end(std::string_view lane);

  struct Span {
    std::string lane, name;
    std::int64_t begin_ns = 0, end_ns = 0;
    double seconds() const { return static_cast<double>(end_ns - begin_ns) * 1e-9; }
  };
  // Waits for the device; by when they begin. What began before is from the first mark on, under its lane's name; what has not ended is
  // left out, and the timeline starts anew.
  std::vector<Span> take();

 private:
  struct What {
    std::string lane, name;  // no name: an end
    bool operator<(const What& other) const { return std::tie(lane, name) < std::tie(other.lane, other.name); }
  };
  void mark(std::string_view lane, std::string_view name);

  std::unique_ptr<kernels::Tape> tape_;
  base::Mutex mutex_;
  std::map<What, int> numbers_ LOCKSTEP_GUARDED_BY(mutex_);
  std::vector<What> known_ LOCKSTEP_GUARDED_BY(mutex_);
};

// The progress itself, whose marks the timeline has too: blocks end there. Either may be null.
std::shared_ptr<kernels::Progress> with_blocks_on(std::shared_ptr<Timeline> timeline, std::shared_ptr<kernels::Progress> progress);

// For Perfetto: a row a lane.
std::string to_trace(const std::vector<Timeline::Span>& spans);

}  // namespace lockstep::train
