// Where a device's time goes, part by part, by its own clock: the host neither waits for it nor reads it.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>

namespace lockstep::kernels {

// One thread, the device's current stream. On CUDA entering a part is a kernel of one thread (some 2 microseconds), which may be recorded
// like any other: a graph that is replayed counts its parts each time.
class Stopwatch {
 public:
  virtual ~Stopwatch() = default;
  // From here on time counts for this part.
  virtual void enter(int part) = 0;
  // Since the first enter() to the last one: f64 [parts] on the device, which goes on being added to.
  virtual const at::Tensor& seconds() const = 0;
};

std::unique_ptr<Stopwatch> make_stopwatch(at::Device device, int parts);

}  // namespace lockstep::kernels
