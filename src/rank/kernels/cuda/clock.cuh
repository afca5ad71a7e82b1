// The device's own clock, which goes by microseconds at worst.
#pragma once

#include <cstdint>

namespace lockstep::kernels::cuda {

__device__ __forceinline__ std::int64_t now_ns() {
  std::int64_t nanoseconds;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(nanoseconds));
  return nanoseconds;
}

}  // namespace lockstep::kernels::cuda
