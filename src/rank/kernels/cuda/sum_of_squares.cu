// Sum of squares of a flat buffer on CUDA: a block of threads a block of numbers, reads everything once.
#include "rank/kernels/cuda/cuda.cuh"

namespace lockstep::kernels::cuda {

namespace {

constexpr int kThreads = 512;

template <typename T, int V>
__global__ void __launch_bounds__(kThreads) blocks(SumOfSquares a) {
  __shared__ double scratch[kThreads];
  static_assert(kSquareBlock % V == 0, "a block is whole vectors; only the last of a buffer has a rest");
  const std::int64_t begin = std::int64_t(blockIdx.x) * kSquareBlock;
  const std::int64_t end = begin + kSquareBlock < a.count ? begin + kSquareBlock : a.count;
  const std::int64_t first = begin / V, last = end / V;
  double whole = 0;
  // f32 within 32 vectors, f64 across: few f64 operations, which small GPUs are slow at.
  for (std::int64_t at = first + threadIdx.x; at < last;) {
    float sum = 0;
#pragma unroll 4
    for (int n = 0; n < 32 && at < last; ++n, at += kThreads) {
      float x[V];
      read<T, V>(static_cast<const T*>(a.values) + at * V, x);
#pragma unroll
      for (int i = 0; i < V; ++i) sum += x[i] * x[i];
    }
    whole += sum;
  }
  if (threadIdx.x == 0)
    for (std::int64_t i = last * V; i < end; ++i) {
      const float x = load(static_cast<const T*>(a.values)[i]);
      whole += x * x;
    }
  scratch[threadIdx.x] = whole;
  __syncthreads();
  for (int half = kThreads / 2; half > 0; half /= 2) {
    if (int(threadIdx.x) < half) scratch[threadIdx.x] += scratch[threadIdx.x + half];
    __syncthreads();
  }
  if (threadIdx.x == 0) a.partials[blockIdx.x] = scratch[0];
}

}  // namespace

void sum_of_squares(const SumOfSquares& a, Stream stream) {
  const auto grid = unsigned(square_blocks(a.count));
  by_type(a.type, [&]<typename T>(T) {
    if (aligned16(a.values)) {
      blocks<T, kFullVector<T>><<<grid, kThreads, 0, native(stream)>>>(a);
    } else {
      blocks<T, 1><<<grid, kThreads, 0, native(stream)>>>(a);
    }
  });
  launched("sum_of_squares");
}

}  // namespace lockstep::kernels::cuda
