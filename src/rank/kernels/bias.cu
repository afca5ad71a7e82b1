// Column sums on CUDA: a bias's gradient, and the second half of every weight gradient that is summed over rows.
#include "rank/kernels/cuda.cuh"

namespace lockstep::kernels::cuda {

namespace {

constexpr int kColumns = 32, kStripes = 8;
constexpr int kSlices = 128;  // of rows: enough blocks to fill a GPU even at a few hundred columns

template <typename T>
__global__ void slice_sums(BiasBackward a) {
  __shared__ float sums[kStripes][kColumns];
  const std::int64_t column = std::int64_t(blockIdx.x) * kColumns + threadIdx.x;
  const std::int64_t first = a.rows * blockIdx.y / gridDim.y, last = a.rows * (blockIdx.y + 1) / gridDim.y;
  float sum = 0;
  if (column < a.width)
    for (std::int64_t row = first + threadIdx.y; row < last; row += kStripes)
      sum += load(static_cast<const T*>(a.dout)[row * a.width + column]);
  sums[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y != 0 || column >= a.width) return;
  for (int stripe = 1; stripe < kStripes; ++stripe) sum += sums[stripe][threadIdx.x];
  a.partials[blockIdx.y * a.width + column] = sum;
}

template <typename T>
__global__ void add_columns(const float* partials, int rows, std::int64_t stride, std::int64_t width, T* target) {
  __shared__ float sums[kStripes][kColumns];
  const std::int64_t column = std::int64_t(blockIdx.x) * kColumns + threadIdx.x;
  float sum = 0;
  if (column < width)
    for (int row = threadIdx.y; row < rows; row += kStripes) sum += partials[row * stride + column];
  sums[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y != 0 || column >= width) return;
  for (int stripe = 1; stripe < kStripes; ++stripe) sum += sums[stripe][threadIdx.x];
  store(target[column], load(target[column]) + sum);
}

}  // namespace

void add_partials(const float* partials, int rows, std::int64_t stride, std::int64_t width, void* target, Type type, cudaStream_t stream) {
  const dim3 block(kColumns, kStripes);
  by_type(type, [&]<typename T>(T) {
    add_columns<T><<<unsigned(ceil_div(width, kColumns)), block, 0, stream>>>(partials, rows, stride, width, static_cast<T*>(target));
  });
  launched("add_partials");
}

void bias_backward(const BiasBackward& a, Stream stream) {
  if (a.rows == 0) return;
  const int slices = int(std::min<std::int64_t>(kSlices, a.rows));
  by_type(a.type, [&]<typename T>(T) {
    slice_sums<T><<<dim3(unsigned(ceil_div(a.width, kColumns)), slices), dim3(kColumns, kStripes), 0, native(stream)>>>(a);
  });
  launched("bias_backward");
  add_partials(a.partials, slices, a.width, a.width, a.dbias, a.gradient_type, native(stream));
}

}  // namespace lockstep::kernels::cuda
