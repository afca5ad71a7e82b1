// Marks on CUDA. Progress: one thread counts in device memory and writes the count to the host. It moves 8 bytes; reading the host's
// counter instead would wait for the bus.
#include <stdexcept>
#include <string>

#include "rank/kernels/cuda/clock.cuh"
#include "rank/kernels/cuda/cuda.cuh"
#include "rank/kernels/progress_table.h"

namespace lockstep::kernels::cuda {

namespace {

__global__ void count_up(unsigned* device, volatile unsigned* host) { *host = ++*device; }

// It moves 32 bytes.
__global__ void enter_part(double* seconds, std::int64_t* since, int part) {
  const std::int64_t now = now_ns();
  if (since[0] != 0) seconds[since[1]] += static_cast<double>(now - since[0]) * 1e-9;
  since[0] = now;
  since[1] = part;
}

__global__ void record_mark(std::int64_t* tape, std::int64_t most, int what) {
  const auto place = static_cast<std::int64_t>(atomicAdd(reinterpret_cast<unsigned long long*>(tape), 1ull));
  if (place >= most) return;
  tape[1 + 2 * place] = what;
  tape[2 + 2 * place] = now_ns();
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

void record(std::int64_t* tape, std::int64_t most, int what, Stream stream) {
  record_mark<<<1, 1, 0, native(stream)>>>(tape, most, what);
  launched("tape");
}

}  // namespace

const ProgressTable& progress_table() {
  static constexpr ProgressTable table{.make = make, .destroy = destroy, .mark = mark, .enter = enter, .record = record};
  return table;
}

}  // namespace lockstep::kernels::cuda
