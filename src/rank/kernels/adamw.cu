// AdamW on CUDA: one pass over the flat buffers of a unit. With bf16 gradients and weights it moves 30 bytes a parameter
// (master and moments in and out, gradient in and zeroed, weight out).
#include "rank/kernels/cuda.cuh"

namespace lockstep::kernels::cuda {

namespace {

constexpr int kThreads = 256;
constexpr int kVector = 4;

struct Numbers {
  float factor, beta1, beta2, step, root, epsilon, keep;
};

template <typename G, typename W, int V>
__device__ __forceinline__ void update(const AdamW& a, const Numbers& n, std::int64_t at) {
  float g[V], m[V], v[V], p[V];
  auto* gradient = static_cast<G*>(a.gradient) + at;
  read<G, V>(gradient, g);
  read<float, V>(a.exp_avg + at, m);
  read<float, V>(a.exp_avg_sq + at, v);
  read<float, V>(a.master + at, p);
#pragma unroll
  for (int i = 0; i < V; ++i) {
    const float keep = at + i < a.decayed ? n.keep : 1.0f;
    g[i] *= n.factor;
    m[i] = m[i] + (g[i] - m[i]) * (1.0f - n.beta1);
    v[i] = v[i] * n.beta2 + g[i] * g[i] * (1.0f - n.beta2);
    p[i] = p[i] * keep - n.step * m[i] / (sqrtf(v[i]) * n.root + n.epsilon);
    g[i] = 0;
  }
  write<float, V>(a.exp_avg + at, m);
  write<float, V>(a.exp_avg_sq + at, v);
  write<float, V>(a.master + at, p);
  if (a.weights) write<W, V>(static_cast<W*>(a.weights) + at, p);
  if (a.zero_gradient) write<G, V>(gradient, g);
}

template <typename G, typename W>
__global__ void __launch_bounds__(kThreads) step(AdamW a) {
  __shared__ Numbers shared;
  const bool skip = a.control->skip != 0;
  if (skip && !a.zero_gradient) return;
  if (threadIdx.x == 0 && !skip)
    shared = {.factor = float(a.control->factor),
              .beta1 = float(a.beta1),
              .beta2 = float(a.beta2),
              .step = float(a.learning_rate / (1 - pow(a.beta1, a.control->updates))),
              .root = float(1 / sqrt(1 - pow(a.beta2, a.control->updates))),
              .epsilon = float(a.epsilon),
              .keep = float(1 - a.learning_rate * a.weight_decay)};
  __syncthreads();
  const Numbers n = shared;
  const std::int64_t whole = a.count / kVector * kVector;
  const std::int64_t stride = std::int64_t(gridDim.x) * kThreads * kVector;
  for (std::int64_t at = (std::int64_t(blockIdx.x) * kThreads + threadIdx.x) * kVector; at < whole; at += stride) {
    if (skip) {
      const float zero[kVector] = {};
      write<G, kVector>(static_cast<G*>(a.gradient) + at, zero);
    } else {
      update<G, W, kVector>(a, n, at);
    }
  }
  if (blockIdx.x != 0 || threadIdx.x != 0) return;
  for (std::int64_t at = whole; at < a.count; ++at) {
    if (skip) {
      store(static_cast<G*>(a.gradient)[at], 0.0f);
    } else {
      update<G, W, 1>(a, n, at);
    }
  }
}

}  // namespace

void adamw(const AdamW& a, Stream stream) {
  if (a.count == 0) return;
  const auto blocks = unsigned(std::min<std::int64_t>(ceil_div(a.count, kThreads * kVector), 132 * 16));
  by_type(a.gradient_type, [&]<typename G>(G) {
    // Weights apart from the master are 16-bit; where they are the master, the second type is not used.
    if (a.weights && a.weight_type == Type::f16) {
      step<G, __half><<<blocks, kThreads, 0, native(stream)>>>(a);
    } else {
      step<G, __nv_bfloat16><<<blocks, kThreads, 0, native(stream)>>>(a);
    }
  });
  launched("adamw");
}

}  // namespace lockstep::kernels::cuda
