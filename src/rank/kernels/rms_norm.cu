// Residual add and RMSNorm on CUDA. A block (in backward of narrow rows, a warp) takes a row and keeps it in registers between the
// two passes, so memory is read once: forward moves 4 numbers an element (2 in, 2 out), backward 4 (dout, x, dx in and out).
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

// Rows that a warp can hold: no thread waits for another warp, and all of a row's reads are in flight before the sum. A lane holds
// K vectors, 32 vectors apart, and its columns' weight gradients until the end; the block's warps then add theirs up in order.
constexpr int kWarps = 4;
constexpr int kResident = 3;  // blocks on a processor: leaves a thread 170 registers, and four vectors of everything take 161
constexpr int kWarpBlocks = 132 * kResident;  // fills an H200 once
static_assert(kWarpBlocks <= kPartialRows);

template <typename T, int V, int K>
__global__ void __launch_bounds__(kWarps * 32, kResident) backward_by_warp(RmsNormBackward a) {
  extern __shared__ float sums[];  // [width]
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  float dweight[K][V] = {};
  for (std::int64_t row = std::int64_t(blockIdx.x) * kWarps + warp; row < a.rows; row += std::int64_t(gridDim.x) * kWarps) {
    const auto at = row * a.width;
    Vector<T, V> x[K], g[K], before[K];
#pragma unroll
    for (int k = 0; k < K; ++k) {
      const int column = (k * 32 + lane) * V;
      if (column >= a.width) break;
      x[k] = *reinterpret_cast<const Vector<T, V>*>(static_cast<const T*>(a.x) + at + column);
      g[k] = *reinterpret_cast<const Vector<T, V>*>(static_cast<const T*>(a.dout) + at + column);
      if (a.accumulate) before[k] = *reinterpret_cast<const Vector<T, V>*>(static_cast<const T*>(a.dx) + at + column);
    }
    const float rstd = a.rstd[row];
    float dot = 0;
#pragma unroll
    for (int k = 0; k < K; ++k) {
      const int column = (k * 32 + lane) * V;
      if (column >= a.width) break;
      float w[V];
      read<T, V>(static_cast<const T*>(a.weight) + column, w);
#pragma unroll
      for (int i = 0; i < V; ++i) {
        const float scaled = load(g[k].value[i]) * load(x[k].value[i]);
        dweight[k][i] += scaled * rstd;
        dot += scaled * w[i];
      }
    }
    const float slope = warp_sum(dot) * rstd * rstd * rstd / float(a.width);
#pragma unroll
    for (int k = 0; k < K; ++k) {
      const int column = (k * 32 + lane) * V;
      if (column >= a.width) break;
      float w[V], dx[V];
      read<T, V>(static_cast<const T*>(a.weight) + column, w);
#pragma unroll
      for (int i = 0; i < V; ++i) {
        dx[i] = load(g[k].value[i]) * w[i] * rstd - load(x[k].value[i]) * slope;
        if (a.accumulate) dx[i] += load(before[k].value[i]);
      }
      write<T, V>(static_cast<T*>(a.dx) + at + column, dx);
    }
  }
  if (!a.dweight) return;
  for (int turn = 0; turn < kWarps; ++turn) {
    if (turn == warp) {
#pragma unroll
      for (int k = 0; k < K; ++k) {
        const int column = (k * 32 + lane) * V;
        if (column >= a.width) break;
#pragma unroll
        for (int i = 0; i < V; ++i) sums[column + i] = (turn == 0 ? 0.0f : sums[column + i]) + dweight[k][i];
      }
    }
    __syncthreads();
  }
  for (int column = threadIdx.x; column < a.width; column += blockDim.x) a.partials[blockIdx.x * a.width + column] = sums[column];
}

// Wider rows, and those whose width leaves a tail: a block walks over rows.
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
  if (!a.dweight) return;
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
  // Column sums want few blocks, since each leaves a row of them; without them more blocks hide more of the waiting.
  int blocks = int(std::min<std::int64_t>(a.dweight ? kPartialRows : 4 * kPartialRows, a.rows));
  by_type(a.type, [&]<typename T>(T) {
    constexpr int V = kFullVector<T>;
    const bool full = a.width % V == 0 && aligned16(a.x) && aligned16(a.dout) && aligned16(a.weight) && aligned16(a.dx);
    const auto by_warp = [&](auto k) {
      blocks = int(std::min<std::int64_t>(kWarpBlocks, ceil_div(a.rows, kWarps)));
      backward_by_warp<T, V, k()><<<blocks, kWarps * 32, std::size_t(a.width) * sizeof(float), native(stream)>>>(a);
    };
    if (full && a.width <= 32 * V) return by_warp(std::integral_constant<int, 1>{});
    if (full && a.width <= 64 * V) return by_warp(std::integral_constant<int, 2>{});
    if (full && a.width <= 128 * V) return by_warp(std::integral_constant<int, 4>{});
    with_vector<T>(full, [&](auto v) {
      with_shape(a.width, v, [&](auto k, int threads) { backward<T, v(), k()><<<blocks, threads, 0, native(stream)>>>(a); });
    });
  });
  launched("rms_norm_backward");
  if (a.dweight) add_partials(a.partials, blocks, a.width, a.width, a.dweight, a.gradient_type, native(stream));
}

}  // namespace lockstep::kernels::cuda
