// Residual add and RMSNorm on CUDA. A block takes a row and keeps it in registers between the two passes, so memory is read once:
// forward moves 4 numbers an element (2 in, 2 out), backward 4 (dout, x, dx in and out).
#include <algorithm>

#include "rank/kernels/cuda/cuda.cuh"

namespace lockstep::kernels::cuda {

namespace {

// A thread holds K vectors of V numbers, blockDim.x vectors apart, in a block of at most so many threads.
template <int K>
inline constexpr int kMostThreads = 256 * K;

template <typename T, int V, int K>
__global__ void __launch_bounds__(kMostThreads<K>) forward(RmsNormForward a) {
  __shared__ float scratch[32];
  const std::int64_t row = blockIdx.x;
  const auto* residual = static_cast<const T*>(a.residual) + row * a.width;
  const auto* delta = static_cast<const T*>(a.delta) + row * a.width;
  float x[K][V];
  float squares = 0;
#pragma unroll
  for (int k = 0; k < K; ++k) {
    const int column = (k * blockDim.x + threadIdx.x) * V;
    if (column >= a.width) break;
    read<T, V>(residual + column, x[k]);
    if (a.delta) {
      float d[V];
      read<T, V>(delta + column, d);
#pragma unroll
      for (int i = 0; i < V; ++i) x[k][i] = rounded<T>(x[k][i] + d[i]);
      write<T, V>(static_cast<T*>(a.x_out) + row * a.width + column, x[k]);
    }
#pragma unroll
    for (int i = 0; i < V; ++i) squares += x[k][i] * x[k][i];
  }
  squares = block_sum(squares, scratch);
  const float rstd = 1.0f / sqrtf(squares / float(a.width) + a.eps);
  if (threadIdx.x == 0) a.rstd[row] = rstd;
#pragma unroll
  for (int k = 0; k < K; ++k) {
    const int column = (k * blockDim.x + threadIdx.x) * V;
    if (column >= a.width) break;
    float w[V];
    read<T, V>(static_cast<const T*>(a.weight) + column, w);
#pragma unroll
    for (int i = 0; i < V; ++i) x[k][i] = x[k][i] * rstd * w[i];
    write<T, V>(static_cast<T*>(a.out) + row * a.width + column, x[k]);
  }
}

template <typename T, int V>
__global__ void apply(RmsNormApply a) {
  const std::int64_t row = blockIdx.x;
  const float rstd = a.rstd[row];
  for (std::int64_t column = std::int64_t(threadIdx.x) * V; column < a.width; column += std::int64_t(blockDim.x) * V) {
    float x[V], w[V];
    read<T, V>(static_cast<const T*>(a.x) + row * a.width + column, x);
    read<T, V>(static_cast<const T*>(a.weight) + column, w);
#pragma unroll
    for (int i = 0; i < V; ++i) x[i] = x[i] * rstd * w[i];
    write<T, V>(static_cast<T*>(a.out) + row * a.width + column, x);
  }
}

// Backward's part of a row as memory holds it; zeros beyond its end. All of it is read before anything of it is written: dx may be dout.
template <typename T, int V, int K>
struct Row {
  Packed<T, V> x[K], dout[K], before[K];
  float rstd;
};

template <typename T, int V, int K>
__device__ __forceinline__ void take(const RmsNormBackward& a, std::int64_t row, Row<T, V, K>& r) {
  const auto at = row * a.width;
#pragma unroll
  for (int k = 0; k < K; ++k) {
    const int column = (k * blockDim.x + threadIdx.x) * V;
    r.x[k] = r.dout[k] = r.before[k] = {};
    if (column >= a.width) continue;
    r.x[k] = packed<V>(static_cast<const T*>(a.x) + at + column);
    r.dout[k] = packed<V>(static_cast<const T*>(a.dout) + at + column);
    if (a.accumulate) r.before[k] = packed<V>(static_cast<const T*>(a.dx) + at + column);
  }
  r.rstd = a.rstd[row];
}

template <typename T, int V, int K>
__device__ __forceinline__ void take_weight(const RmsNormBackward& a, Packed<T, V> (&weight)[K]) {
#pragma unroll
  for (int k = 0; k < K; ++k) {
    const int column = (k * blockDim.x + threadIdx.x) * V;
    weight[k] = {};
    if (column < a.width) weight[k] = packed<V>(static_cast<const T*>(a.weight) + column);
  }
}

// The thread's share of sum(dout * x * weight); its columns' weight gradients grow.
template <typename T, int V, int K>
__device__ __forceinline__ float products(const Row<T, V, K>& r, const Packed<T, V> (&weight)[K], float (&dweight)[K][V]) {
  float dot = 0;
#pragma unroll
  for (int k = 0; k < K; ++k) {
    float x[V], dout[V], w[V];
    unpack(r.x[k], x);
    unpack(r.dout[k], dout);
    unpack(weight[k], w);
#pragma unroll
    for (int i = 0; i < V; ++i) {
      const float scaled = dout[i] * x[i];
      dweight[k][i] += scaled * r.rstd;
      dot += scaled * w[i];
    }
  }
  return dot;
}

template <typename T, int V, int K>
__device__ __forceinline__ void give(const RmsNormBackward& a, std::int64_t row, const Row<T, V, K>& r, const Packed<T, V> (&weight)[K],
                                     float dot) {
  const float slope = dot * r.rstd * r.rstd * r.rstd / float(a.width);
#pragma unroll
  for (int k = 0; k < K; ++k) {
    const int column = (k * blockDim.x + threadIdx.x) * V;
    if (column >= a.width) break;
    float x[V], dout[V], w[V], dx[V];
    unpack(r.x[k], x);
    unpack(r.dout[k], dout);
    unpack(weight[k], w);
    unpack(r.before[k], dx);
#pragma unroll
    for (int i = 0; i < V; ++i) dx[i] += dout[i] * w[i] * r.rstd - x[i] * slope;
    write<T, V>(static_cast<T*>(a.dx) + row * a.width + column, dx);
  }
}

// Without a weight gradient, a block a row. Few registers matter most here: 4096 wide rows of bf16 move at 4.2 TB/s on an H200 with
// four blocks of two vectors a thread on a processor, and at 3.3 with a fifth, for which registers would have to spill.
template <typename T, int V, int K>
__global__ void __launch_bounds__(kMostThreads<K>, K == 1   ? 5
                                                   : K == 2 ? 2
                                                            : 1) backward_of_row(RmsNormBackward a) {
  __shared__ float scratch[32];
  Row<T, V, K> row;
  Packed<T, V> weight[K];
  float unused[K][V] = {};
  take(a, blockIdx.x, row);
  take_weight(a, weight);
  give(a, blockIdx.x, row, weight, block_sum(products(row, weight, unused), scratch));
}

// With one, a block walks over rows and keeps its columns' sums; the next row is on its way while this one is summed (at 4096 3.75 TB/s
// with the sums' second half, against 3.6 for more blocks that read no row ahead).
template <int K>
inline constexpr int kWalkers = K == 1 ? 3 : 1;  // blocks of the most threads that a processor must hold

template <typename T, int V, int K>
__global__ void __launch_bounds__(kMostThreads<K>, kWalkers<K>) backward_of_rows(RmsNormBackward a) {
  __shared__ float scratch[2][32];
  float dweight[K][V] = {};
  Packed<T, V> weight[K];
  take_weight(a, weight);
  Row<T, V, K> now, next;
  std::int64_t row = blockIdx.x;
  take(a, row, now);
  for (int turn = 0; row < a.rows; row += gridDim.x, turn ^= 1) {
    if (row + gridDim.x < a.rows) take(a, row + gridDim.x, next);
    give(a, row, now, weight, block_sum(products(now, weight, dweight), scratch[turn]));
    now = next;
  }
#pragma unroll
  for (int k = 0; k < K; ++k) {
    const int column = (k * blockDim.x + threadIdx.x) * V;
    if (column >= a.width) break;
#pragma unroll
    for (int i = 0; i < V; ++i) a.partials[blockIdx.x * a.width + column + i] = dweight[k][i];
  }
}

// As few vectors a thread as keep the block within kMostThreads.
template <typename F>
void with_shape(std::int64_t width, int vector, F body) {
  const auto vectors = ceil_div(width, vector);
  const auto threads = [&](std::int64_t k) { return int(ceil_div(ceil_div(vectors, k), 32) * 32); };
  if (threads(1) <= kMostThreads<1>) return body(std::integral_constant<int, 1>{}, threads(1));
  if (threads(2) <= kMostThreads<2>) return body(std::integral_constant<int, 2>{}, threads(2));
  if (threads(4) <= kMostThreads<4>) return body(std::integral_constant<int, 4>{}, threads(4));
  throw std::runtime_error("RMSNorm on CUDA: rows of " + std::to_string(width) + " numbers do not fit into a block");
}

template <typename T, typename F>
void with_vector(bool full, F body) {
  if (full) return body(std::integral_constant<int, kFullVector<T>>{});
  body(std::integral_constant<int, 1>{});
}

}  // namespace

void rms_norm_forward(const RmsNormForward& a, Stream stream) {
  if (a.rows == 0) return;
  by_type(a.type, [&]<typename T>(T) {
    const bool full = a.width % kFullVector<T> == 0 && aligned16(a.residual) && aligned16(a.delta) && aligned16(a.weight) &&
                      aligned16(a.out) && aligned16(a.x_out);
    with_vector<T>(full, [&](auto v) {
      with_shape(a.width, v, [&](auto k, int threads) { forward<T, v(), k()><<<a.rows, threads, 0, native(stream)>>>(a); });
    });
  });
  launched("rms_norm_forward");
}

void rms_norm_apply(const RmsNormApply& a, Stream stream) {
  if (a.rows == 0) return;
  by_type(a.type, [&]<typename T>(T) {
    const bool full = a.width % kFullVector<T> == 0 && aligned16(a.x) && aligned16(a.weight) && aligned16(a.out);
    with_vector<T>(full, [&](auto v) {
      const int threads = int(std::min<std::int64_t>(256, ceil_div(ceil_div(a.width, v), 32) * 32));
      apply<T, v()><<<a.rows, threads, 0, native(stream)>>>(a);
    });
  });
  launched("rms_norm_apply");
}

void rms_norm_backward(const RmsNormBackward& a, Stream stream) {
  if (a.rows == 0) return;
  by_type(a.type, [&]<typename T>(T) {
    const bool full = a.width % kFullVector<T> == 0 && aligned16(a.x) && aligned16(a.dout) && aligned16(a.weight) && aligned16(a.dx);
    with_vector<T>(full, [&](auto v) {
      with_shape(a.width, v, [&](auto k, int threads) {
        if (!a.dweight) return backward_of_row<T, v(), k()><<<unsigned(a.rows), threads, 0, native(stream)>>>(a);
        const int resident = processors() * (kWalkers<k()> * kMostThreads<k()> / threads);
        const int blocks = int(std::min<std::int64_t>({resident, kPartialRows, a.rows}));
        backward_of_rows<T, v(), k()><<<blocks, threads, 0, native(stream)>>>(a);
        launched("rms_norm_backward");
        add_partials(a.partials, blocks, a.width, a.width, a.dweight, a.gradient_type, native(stream));
      });
    });
  });
  launched("rms_norm_backward");
}

}  // namespace lockstep::kernels::cuda
