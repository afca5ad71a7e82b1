// Sum of rows on CUDA: a thread adds up a vector of each row. It reads every number once.
#include "rank/kernels/cuda/cuda.cuh"

namespace lockstep::kernels::cuda {

namespace {

constexpr int kThreads = 256;

template <typename T, typename Out, int V>
__global__ void __launch_bounds__(kThreads) add_rows(SumOfRows a) {
  const std::int64_t at = (std::int64_t(blockIdx.x) * kThreads + threadIdx.x) * V;
  if (at >= a.width) return;
  const T* rows = static_cast<const T*>(a.rows) + at;
  float sum[V];
  read<T, V>(rows, sum);
#pragma unroll 4
  for (std::int64_t row = 1; row < a.count_of_rows; ++row) {
    float x[V];
    read<T, V>(rows + row * a.width, x);
#pragma unroll
    for (int i = 0; i < V; ++i) sum[i] += x[i];
  }
  write<Out, V>(static_cast<Out*>(a.out) + at, sum);
}

}  // namespace

void sum_of_rows(const SumOfRows& a, Stream stream) {
  by_type(a.type, [&]<typename T>(T) {
    by_type(a.out_type, [&]<typename Out>(Out) {
      constexpr int V = kFullVector<T>;
      if (a.width % V == 0 && aligned16(a.rows) && aligned16(a.out)) {
        add_rows<T, Out, V><<<unsigned(ceil_div(a.width / V, std::int64_t{kThreads})), kThreads, 0, native(stream)>>>(a);
      } else {
        add_rows<T, Out, 1><<<unsigned(ceil_div(a.width, std::int64_t{kThreads})), kThreads, 0, native(stream)>>>(a);
      }
    });
  });
  launched("sum_of_rows");
}

}  // namespace lockstep::kernels::cuda
