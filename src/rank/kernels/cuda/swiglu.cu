// SwiGLU on CUDA. Forward moves 3 numbers an element, backward 5 (6 where the output is recomputed).
#include "rank/kernels/cuda/cuda.cuh"
#include "rank/kernels/cuda/swiglu.cuh"

namespace lockstep::kernels::cuda {

namespace {

constexpr int kThreads = 256;

template <typename T, int V>
__global__ void forward(SwigluForward a) {
  const std::int64_t column = (std::int64_t(blockIdx.x) * kThreads + threadIdx.x) * V;
  if (column >= a.width) return;
  for (std::int64_t row = blockIdx.y; row < a.rows; row += gridDim.y) {
    const auto* gate_up = static_cast<const T*>(a.gate_up) + row * 2 * a.width;
    float g[V], u[V];
    read<T, V>(gate_up + column, g);
    read<T, V>(gate_up + a.width + column, u);
#pragma unroll
    for (int i = 0; i < V; ++i) g[i] = swiglu<T>(g[i], u[i]);
    write<T, V>(static_cast<T*>(a.out) + row * a.width + column, g);
  }
}

template <typename T, int V>
__global__ void backward(SwigluBackward a) {
  const std::int64_t column = (std::int64_t(blockIdx.x) * kThreads + threadIdx.x) * V;
  if (column >= a.width) return;
  for (std::int64_t row = blockIdx.y; row < a.rows; row += gridDim.y) {
    const auto* gate_up = static_cast<const T*>(a.gate_up) + row * 2 * a.width;
    auto* dgate_up = static_cast<T*>(a.dgate_up) + row * 2 * a.width;
    float g[V], u[V], d[V], out[V];
    read<T, V>(gate_up + column, g);
    read<T, V>(gate_up + a.width + column, u);
    read<T, V>(static_cast<const T*>(a.dout) + row * a.width + column, d);
#pragma unroll
    for (int i = 0; i < V; ++i) out[i] = differentiate_swiglu<T>(g[i], u[i], d[i]);
    if (a.out) write<T, V>(static_cast<T*>(a.out) + row * a.width + column, out);
    write<T, V>(dgate_up + column, g);
    write<T, V>(dgate_up + a.width + column, u);
  }
}

dim3 grid_for(std::int64_t rows, std::int64_t width, int vector) {
  return dim3(unsigned(ceil_div(ceil_div(width, vector), kThreads)), unsigned(std::min<std::int64_t>(rows, 65535)));
}

}  // namespace

void swiglu_forward(const SwigluForward& a, Stream stream) {
  if (a.rows == 0) return;
  by_type(a.type, [&]<typename T>(T) {
    constexpr int full = kFullVector<T>;
    if (a.width % full == 0 && aligned16(a.gate_up) && aligned16(a.out)) {
      forward<T, full><<<grid_for(a.rows, a.width, full), kThreads, 0, native(stream)>>>(a);
    } else {
      forward<T, 1><<<grid_for(a.rows, a.width, 1), kThreads, 0, native(stream)>>>(a);
    }
  });
  launched("swiglu_forward");
}

void swiglu_backward(const SwigluBackward& a, Stream stream) {
  if (a.rows == 0) return;
  by_type(a.type, [&]<typename T>(T) {
    constexpr int full = kFullVector<T>;
    if (a.width % full == 0 && aligned16(a.gate_up) && aligned16(a.dout) && aligned16(a.dgate_up) && aligned16(a.out)) {
      backward<T, full><<<grid_for(a.rows, a.width, full), kThreads, 0, native(stream)>>>(a);
    } else {
      backward<T, 1><<<grid_for(a.rows, a.width, 1), kThreads, 0, native(stream)>>>(a);
    }
  });
  launched("swiglu_backward");
}

}  // namespace lockstep::kernels::cuda
