// Keeps a device's stream busy for a stated time, as a collective's kernels would: for links that are modelled.
#pragma once

#include <ATen/core/Tensor.h>

namespace lockstep::kernels {

// On the current stream of clock's device; clock: an i64 scalar there. hold() lasts until so many seconds after begin_hold(). blocks: what
// a collective takes of a device meanwhile; 1 stands for copy engines, 16 to 24 for NCCL's kernels.
void begin_hold(const at::Tensor& clock);
void hold(const at::Tensor& clock, double seconds, int blocks);

}  // namespace lockstep::kernels
