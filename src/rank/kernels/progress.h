// How far a device has come, in a counter that it bumps itself and that the host reads without asking it.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <memory>

namespace lockstep::kernels {

// On CUDA the host may be far ahead of the device, which then works for minutes off one recorded graph: only the device knows that it
// moves. A mark is a kernel of one thread (some 2 microseconds) that writes to host memory; it may be recorded like any other.
class Progress {
 public:
  virtual ~Progress() = default;
  virtual void mark() = 0;                  // on the device's current stream
  virtual std::uint64_t count() const = 0;  // marks that the device has come by; any thread
};

std::shared_ptr<Progress> make_progress(at::Device device);

}  // namespace lockstep::kernels
