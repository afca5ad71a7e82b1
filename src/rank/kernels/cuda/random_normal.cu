// Fills a buffer with normal numbers on CUDA: the same bits as on a CPU.
#include "rank/kernels/cuda/cuda.cuh"
#include "rank/kernels/rules/normal.h"

namespace lockstep::kernels::cuda {

namespace {

__global__ void fill(RandomNormal a) {
  const std::int64_t first_group = a.first / 4, groups = (a.first + a.count + 3) / 4 - first_group;
  for (std::int64_t g = std::int64_t(blockIdx.x) * blockDim.x + threadIdx.x; g < groups; g += std::int64_t(gridDim.x) * blockDim.x) {
    const auto four = normal_group(a.key, std::uint64_t(first_group + g));
#pragma unroll
    for (int lane = 0; lane < 4; ++lane) {
      const std::int64_t i = (first_group + g) * 4 + lane - a.first;
      if (i >= 0 && i < a.count) a.out[i] = four.value[lane] * a.std;
    }
  }
}

}  // namespace

void random_normal(const RandomNormal& a, Stream stream) {
  if (a.count == 0) return;
  fill<<<unsigned(std::min<std::int64_t>(ceil_div(a.count, 1024), 4096)), 256, 0, native(stream)>>>(a);
  launched("random_normal");
}

}  // namespace lockstep::kernels::cuda
