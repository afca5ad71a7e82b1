// Residual add and RMSNorm on CUDA. A block takes a row and keeps it in registers between the two passes, so memory is read
// once: forward moves 4 numbers an element (2 in, 2 out), backward 4 (dout, x, dx in and out).
#include "rank/kernels/cuda.cuh"

namespace lockstep::kernels::cuda {

namespace {

// Each thread holds K vectors of V numbers, blockDim.x vectors apart.
template <typename T, int V, int K>
__global__ void forward(RmsNormForward a) {
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

// A block walks over rows and keeps its columns' weight gradients in registers until the end.
template <typename T, int V, int K>
__global__ void backward(RmsNormBackward a) {
  __shared__ float scratch[2][32];
  float dweight[K][V] = {};
  int turn = 0;
  for (std::int64_t row = blockIdx.x; row < a.rows; row += gridDim.x, turn ^= 1) {
    const float rstd = a.rstd[row];
    float x[K][V], g[K][V];  // g: dout, then dout * weight
    float dot = 0;
#pragma unroll
    for (int k = 0; k < K; ++k) {
      const int column = (k * blockDim.x + threadIdx.x) * V;
      if (column >= a.width) break;
      float w[V];
      read<T, V>(static_cast<const T*>(a.x) + row * a.width + column, x[k]);
      read<T, V>(static_cast<const T*>(a.dout) + row * a.width + column, g[k]);
      read<T, V>(static_cast<const T*>(a.weight) + column, w);
#pragma unroll
      for (int i = 0; i < V; ++i) {
        const float scaled = g[k][i] * x[k][i];
        dweight[k][i] += scaled * rstd;
        dot += scaled * w[i];
        g[k][i] *= w[i];
      }
    }
    dot = block_sum(dot, scratch[turn]);
    const float slope = dot * rstd * rstd * rstd / float(a.width);
#pragma unroll
    for (int k = 0; k < K; ++k) {
      const int column = (k * blockDim.x + threadIdx.x) * V;
      if (column >= a.width) break;
      auto* dx = static_cast<T*>(a.dx) + row * a.width + column;
      float before[V] = {};
      if (a.accumulate) read<T, V>(dx, before);
#pragma unroll
      for (int i = 0; i < V; ++i) before[i] += g[k][i] * rstd - x[k][i] * slope;
      write<T, V>(dx, before);
    }
  }
#pragma unroll
  for (int k = 0; k < K; ++k) {
    const int column = (k * blockDim.x + threadIdx.x) * V;
    if (column >= a.width) break;
#pragma unroll
    for (int i = 0; i < V; ++i) a.partials[blockIdx.x * a.width + column + i] = dweight[k][i];
  }
}

// Fewest vectors a thread that keep the block at 256 threads, up to 4; then the block grows to 1024.
template <typename F>
void with_shape(std::int64_t width, int vector, F body) {
  const auto vectors = ceil_div(width, vector);
  const auto threads = [&](std::int64_t k) { return int(ceil_div(ceil_div(vectors, k), 32) * 32); };
  if (vectors <= 256) return body(std::integral_constant<int, 1>{}, threads(1));
  if (vectors <= 512) return body(std::integral_constant<int, 2>{}, threads(2));
  if (threads(4) > 1024) throw std::runtime_error("RMSNorm on CUDA: rows of " + std::to_string(width) + " numbers do not fit into a block");
  body(std::integral_constant<int, 4>{}, threads(4));
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
  const int blocks = int(std::min<std::int64_t>(kPartialRows, a.rows));
  by_type(a.type, [&]<typename T>(T) {
    const bool full = a.width % kFullVector<T> == 0 && aligned16(a.x) && aligned16(a.dout) && aligned16(a.weight) && aligned16(a.dx);
    with_vector<T>(full, [&](auto v) {
      with_shape(a.width, v, [&](auto k, int threads) { backward<T, v(), k()><<<blocks, threads, 0, native(stream)>>>(a); });
    });
  });
  launched("rms_norm_backward");
  add_partials(a.partials, blocks, a.width, a.width, a.dweight, a.gradient_type, native(stream));
}

}  // namespace lockstep::kernels::cuda
