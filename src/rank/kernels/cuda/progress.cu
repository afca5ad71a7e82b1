// Marks on CUDA. Progress: one thread counts in device memory and writes the count to the host. It moves 8 bytes; reading the host's
// counter instead would wait for the bus.
#include <stdexcept>
#include <string>

#include "rank/kernels/cuda/cuda.cuh"
#include "rank/kernels/progress_table.h"

namespace lockstep::kernels::cuda {

namespace {

__global__ void count_up(unsigned* device, volatile unsigned* host) { *host = ++*device; }

// The device's own clock, which goes by microseconds at worst. It moves 32 bytes.
__global__ void enter_part(double* seconds, std::int64_t* since, int part) {
  std::uint64_t now;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
  if (since[0] != 0) seconds[since[1]] += static_cast<double>(static_cast<std::int64_t>(now) - since[0]) * 1e-9;
  since[0] = static_cast<std::int64_t>(now);
  since[1] = part;
}

void expect(cudaError_t result, const char* doing) {
  if (result != cudaSuccess) throw std::runtime_error(std::string(doing) + ": " + cudaGetErrorString(result));
}

ProgressCounters make(int device) {
  ProgressCounters counters;
  expect(cudaSetDevice(device), "progress counter");
  expect(cudaMalloc(&counters.device, sizeof(unsigned)), "progress counter");
  expect(cudaMemset(counters.device, 0, sizeof(unsigned)), "progress counter");
  unsigned* host = nullptr;
  expect(cudaHostAlloc(&host, sizeof(unsigned), cudaHostAllocMapped | cudaHostAllocPortable), "progress counter");
  *host = 0;
  counters.host = host;
  return counters;
}

void destroy(const ProgressCounters& counters) {
  cudaFree(counters.device);
  cudaFreeHost(const_cast<unsigned*>(counters.host));
}

// Memory of cudaHostAlloc has one address for host and device.
void mark(const ProgressCounters& counters, Stream stream) {
  count_up<<<1, 1, 0, native(stream)>>>(counters.device, const_cast<unsigned*>(counters.host));
  launched("progress");
}

void enter(double* seconds, std::int64_t* since, int part, Stream stream) {
  enter_part<<<1, 1, 0, native(stream)>>>(seconds, since, part);
  launched("stopwatch");
}

}  // namespace

const ProgressTable& progress_table() {
  static constexpr ProgressTable table{.make = make, .destroy = destroy, .mark = mark, .enter = enter};
  return table;
}

}  // namespace lockstep::kernels::cuda
