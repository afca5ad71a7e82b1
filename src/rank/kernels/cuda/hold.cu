// Blocks that wait: as many threads, and as much shared memory, as a collective's kernel keeps from others meanwhile.
#include <cstdint>

#include "rank/kernels/cuda/clock.cuh"
#include "rank/kernels/cuda/cuda.cuh"
#include "rank/kernels/hold_table.h"

namespace lockstep::kernels::cuda {

namespace {

constexpr int threads = 544;            // of an NCCL kernel: 512 that move data, a warp that leads
constexpr int shared_bytes = 80 << 10;  // and about what it keeps of a multiprocessor's shared memory
constexpr int one_block_threads = 32;   // a copy engine takes no multiprocessor: what starts it does, for a moment

__global__ void stamp(std::int64_t* clock) { *clock = now_ns(); }

__global__ void wait_until(const std::int64_t* clock, std::int64_t nanoseconds) {
  const std::int64_t end = *clock + nanoseconds;
  while (now_ns() < end) __nanosleep(200);
}

void begin(std::int64_t* clock, Stream stream) {
  stamp<<<1, 1, 0, native(stream)>>>(clock);
  launched("begin_hold");
}

void hold(const std::int64_t* clock, std::int64_t nanoseconds, int blocks, Stream stream) {
  const bool engines = blocks == 1;
  if (!engines) cudaFuncSetAttribute(wait_until, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes);
  wait_until<<<blocks, engines ? one_block_threads : threads, engines ? 0 : shared_bytes, native(stream)>>>(clock, nanoseconds);
  launched("hold");
}

}  // namespace

const HoldTable& hold_table() {
  static constexpr HoldTable table{.begin = begin, .hold = hold};
  return table;
}

}  // namespace lockstep::kernels::cuda
