// Dropout on CUDA: the same elements fall as on a CPU. Bound by memory: reads and writes each element once.
#include "rank/kernels/cuda/cuda.cuh"
#include "rank/kernels/rules/dropout.h"

namespace lockstep::kernels::cuda {

namespace {

template <typename T, int V>
__global__ void drop(Dropout a, float scale, std::uint32_t threshold) {
  const std::int64_t row = blockIdx.x;
  const auto key = dropout_row_key(std::uint64_t(a.keys[row / a.time]), a.site, row % a.time);
  for (std::int64_t i = std::int64_t(threadIdx.x) * V; i < a.width; i += std::int64_t(blockDim.x) * V) {
    float x[V];
    read<T, V>(static_cast<const T*>(a.in) + row * a.width + i, x);
#pragma unroll
    for (int j = 0; j < V; ++j) x[j] = keeps(key, i + j, threshold) ? x[j] * scale : 0.0f;
    write<T, V>(static_cast<T*>(a.out) + row * a.width + i, x);
  }
}

}  // namespace

void dropout(const Dropout& a, Stream stream) {
  if (a.rows == 0) return;
  const float scale = 1.0f / (1.0f - a.share);
  const auto threshold = std::uint32_t(double(a.share) * 4294967296.0);
  by_type(a.type, [&]<typename T>(T) {
    constexpr int V = kFullVector<T>;
    if (a.width % V == 0 && aligned16(a.in) && aligned16(a.out)) {
      drop<T, V><<<unsigned(a.rows), 256, 0, native(stream)>>>(a, scale, threshold);
    } else {
      drop<T, 1><<<unsigned(a.rows), 256, 0, native(stream)>>>(a, scale, threshold);
    }
  });
  launched("dropout");
}

}  // namespace lockstep::kernels::cuda
