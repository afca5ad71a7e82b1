// Column sums on CUDA: a bias's gradient, and the second half of every weight gradient that is summed over rows.
#include "rank/kernels/cuda/cuda.cuh"

namespace lockstep::kernels::cuda {

namespace {

constexpr int kLanes = 32, kStripes = 8;
constexpr int kSlices = 128;     // of rows: enough blocks to fill a GPU even at a few hundred columns
constexpr int kAddStripes = 32;  // few columns and a few hundred rows: many short sums

// A thread sums V neighboring columns over every kStripes-th row of the block's slice.
template <typename T, int V>
__global__ void __launch_bounds__(kLanes* kStripes) slice_sums(BiasBackward a) {
  __shared__ float sums[kStripes][kLanes * V];
  const std::int64_t column = (std::int64_t(blockIdx.x) * kLanes + threadIdx.x) * V;
  const std::int64_t first = a.rows * blockIdx.y / gridDim.y, last = a.rows * (blockIdx.y + 1) / gridDim.y;
  float sum[V] = {};
  if (column < a.width) {
#pragma unroll 4
    for (std::int64_t row = first + threadIdx.y; row < last; row += kStripes) {
      float x[V];
      read<T, V>(static_cast<const T*>(a.dout) + row * a.width + column, x);
#pragma unroll
      for (int i = 0; i < V; ++i) sum[i] += x[i];
    }
  }
#pragma unroll
  for (int i = 0; i < V; ++i) sums[threadIdx.y][threadIdx.x * V + i] = sum[i];
  __syncthreads();
  for (int at = threadIdx.y * kLanes + threadIdx.x; at < kLanes * V; at += kLanes * kStripes) {
    const std::int64_t target = std::int64_t(blockIdx.x) * kLanes * V + at;
    if (target >= a.width) break;
    float whole = 0;
    for (int stripe = 0; stripe < kStripes; ++stripe) whole += sums[stripe][at];
    a.partials[blockIdx.y * a.width + target] = whole;
  }
}

template <typename T>
__global__ void add_columns(const float* partials, int rows, std::int64_t stride, std::int64_t width, T* target) {
  __shared__ float sums[kAddStripes][kLanes];
  const std::int64_t column = std::int64_t(blockIdx.x) * kLanes + threadIdx.x;
  float sum = 0;
  if (column < width) {
#pragma unroll 4
    for (int row = threadIdx.y; row < rows; row += kAddStripes) sum += partials[row * stride + column];
  }
  sums[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y != 0 || column >= width) return;
  for (int stripe = 1; stripe < kAddStripes; ++stripe) sum += sums[stripe][threadIdx.x];
  store(target[column], load(target[column]) + sum);
}

}  // namespace

void add_partials(const float* partials, int rows, std::int64_t stride, std::int64_t width, void* target, Type type, cudaStream_t stream) {
  const dim3 block(kLanes, kAddStripes);
  by_type(type, [&]<typename T>(T) {
    add_columns<T><<<unsigned(ceil_div(width, kLanes)), block, 0, stream>>>(partials, rows, stride, width, static_cast<T*>(target));
  });
  launched("add_partials");
}

void bias_backward(const BiasBackward& a, Stream stream) {
  if (a.rows == 0) return;
  const int slices = int(std::min<std::int64_t>(kSlices, a.rows));
  by_type(a.type, [&]<typename T>(T) {
    constexpr int full = kFullVector<T>;
    const dim3 block(kLanes, kStripes);
    if (a.width % full == 0 && aligned16(a.dout)) {
      slice_sums<T, full><<<dim3(unsigned(ceil_div(a.width, kLanes * full)), slices), block, 0, native(stream)>>>(a);
    } else {
      slice_sums<T, 1><<<dim3(unsigned(ceil_div(a.width, kLanes)), slices), block, 0, native(stream)>>>(a);
    }
  });
  launched("bias_backward");
  add_partials(a.partials, slices, a.width, a.width, a.dbias, a.gradient_type, native(stream));
}

}  // namespace lockstep::kernels::cuda
