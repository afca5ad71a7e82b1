// When a device came by which mark, by its own clock.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <memory>
#include <vector>

namespace lockstep::kernels {

// A mark goes onto the current stream, any of the device's. On CUDA it is a kernel of one thread (some 2 microseconds), which may be
// recorded like any other: a graph that is replayed leaves its marks each time.
class Tape {
 public:
  struct Mark {
    std::int64_t what = 0, nanoseconds = 0;
  };
  virtual ~Tape() = default;
  virtual void mark(int what) = 0;
  // Waits for the device. In the order of their times; the tape is empty afterwards. Marks beyond the most it holds are lost.
  virtual std::vector<Mark> take() = 0;
};

std::unique_ptr<Tape> make_tape(at::Device device, std::int64_t most);

}  // namespace lockstep::kernels
