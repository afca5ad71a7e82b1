// Muon's momentum on CUDA. With bf16 gradients and results it moves 14 bytes a number (momentum f32), 10 (bf16).
#include "rank/kernels/cuda/update/update.cuh"

namespace lockstep::kernels::cuda {

namespace {

template <typename G, typename M, typename O, int V>
__device__ __forceinline__ void momentum_vector(const Nesterov& a, const UpdateNumbers& n, std::int64_t at) {
  float g[V], m[V], u[V];
  std::uint32_t bits[V];
  auto* momentum = static_cast<M*>(a.momentum) + at;
  read<G, V>(static_cast<G*>(a.gradient) + at, g);
  read<M, V>(momentum, m);
#pragma unroll
  for (int i = 0; i < V; ++i) {
    nesterov_one(n, g[i], m[i], u[i]);
    bits[i] = for_first(random_word(n, std::uint64_t(a.place + at + i)));
    g[i] = 0;
  }
  settle<V>(momentum, m, bits);
  write<O, V>(static_cast<O*>(a.out) + at, u);
  if (a.zero_gradient) write<G, V>(static_cast<G*>(a.gradient) + at, g);
}

template <typename G, typename M, typename O, int V>
__global__ void __launch_bounds__(kUpdateThreads) momentum_kernel(Nesterov a, std::int64_t whole) {
  __shared__ UpdateNumbers shared;
  const bool skip = a.control->skip != 0;
  if (threadIdx.x == 0 && !skip) shared = numbers_of(a);
  __syncthreads();
  const UpdateNumbers n = shared;
  const std::int64_t thread = std::int64_t(blockIdx.x) * kUpdateThreads + threadIdx.x;
  const std::int64_t threads = std::int64_t(gridDim.x) * kUpdateThreads;
  for (std::int64_t at = thread * V; at < whole; at += threads * V) {
    if (!skip)
      momentum_vector<G, M, O, V>(a, n, at);
    else if (a.zero_gradient)
      clear_vector<G, V>(static_cast<G*>(a.gradient) + at);
  }
  for (std::int64_t at = whole + thread; at < a.count; at += threads) {
    if (!skip)
      momentum_vector<G, M, O, 1>(a, n, at);
    else if (a.zero_gradient)
      clear_vector<G, 1>(static_cast<G*>(a.gradient) + at);
  }
}

template <typename G, typename M, typename O>
void launch(const Nesterov& a, Stream stream) {
  constexpr int V = 4;
  const bool aligned = aligned16(a.gradient) && aligned16(a.momentum) && aligned16(a.out);
  const std::int64_t whole = aligned ? a.count / V * V : 0;
  const auto blocks = unsigned(std::min<std::int64_t>(ceil_div(a.count, aligned ? kUpdateThreads * V : kUpdateThreads), 132 * 16));
  momentum_kernel<G, M, O, V><<<blocks, kUpdateThreads, 0, native(stream)>>>(a, whole);
  launched("nesterov");
}

}  // namespace

void nesterov(const Nesterov& a, Stream stream) {
  if (a.count == 0) return;
  by_type(a.gradient_type, [&]<typename G>(G) {
    if (a.momentum_type == Type::bf16 && a.out_type == Type::bf16) return launch<G, __nv_bfloat16, __nv_bfloat16>(a, stream);
    if (a.momentum_type == Type::f32 && a.out_type == Type::bf16) return launch<G, float, __nv_bfloat16>(a, stream);
    if (a.momentum_type == Type::f32 && a.out_type == Type::f32) return launch<G, float, float>(a, stream);
    throw std::runtime_error("CUDA kernel nesterov: no such mixture of types");
  });
}

}  // namespace lockstep::kernels::cuda
