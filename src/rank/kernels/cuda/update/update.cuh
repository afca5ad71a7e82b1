// Updates on CUDA: one pass over flat buffers. Each rule is compiled in a file of its own.
// Bytes a parameter with bf16 gradients (read and zeroed) and AdamW: 30 with f32 masters (masters and moments in and out, weights
// out), 16 where bf16 weights are their own masters (weights and moments in and out, 16 bytes an access).
#pragma once

#include "rank/kernels/cuda/cuda.cuh"
#include "rank/kernels/rules/update.h"

namespace lockstep::kernels::cuda {

constexpr int kUpdateThreads = 256;

// Writes V numbers: f32 as they are, bf16 rounded stochastically.
template <int V>
__device__ __forceinline__ void settle(float* to, const float (&from)[V], const std::uint32_t (&)[V]) {
  write<float, V>(to, from);
}
template <int V>
__device__ __forceinline__ void settle(__nv_bfloat16* to, const float (&from)[V], const std::uint32_t (&bits)[V]) {
  Vector<std::uint16_t, V> packed;
#pragma unroll
  for (int i = 0; i < V; ++i) packed.value[i] = stochastic_bf16(from[i], bits[i]);
  *reinterpret_cast<Vector<std::uint16_t, V>*>(to) = packed;
}

template <Rule rule, typename G, typename P, typename S, int V>
__device__ __forceinline__ void update_vector(const Update& a, const UpdateNumbers& n, std::int64_t at) {
  float g[V], p[V], m[V] = {}, v[V] = {};
  auto* gradient = static_cast<G*>(a.gradient) + at;
  auto* exact = static_cast<P*>(a.exact) + at;
  auto* first = static_cast<S*>(a.first) + at;
  auto* second = static_cast<S*>(a.second) + at;
  read<G, V>(gradient, g);
  read<P, V>(exact, p);
  if constexpr (kStates<rule> > 0) read<S, V>(first, m);
  if constexpr (kStates<rule> > 1) read<S, V>(second, v);
  std::uint32_t for_p[V], for_m[V], for_v[V];  // never computed where nothing is rounded
#pragma unroll
  for (int i = 0; i < V; ++i) {
    update_one<rule>(n, g[i], p[i], m[i], v[i]);
    const std::uint32_t word = random_word(n, std::uint64_t(a.place + at + i));
    for_p[i] = for_weight(word);
    for_m[i] = for_first(word);
    for_v[i] = for_second(word);
    g[i] = 0;
  }
  settle<V>(exact, p, for_p);
  if constexpr (kStates<rule> > 0) settle<V>(first, m, for_m);
  if constexpr (kStates<rule> > 1) settle<V>(second, v, for_v);
  if constexpr (sizeof(P) == 4) {
    if (a.weights != nullptr) {
      if (a.weight_type == Type::f16)
        write<__half, V>(static_cast<__half*>(a.weights) + at, p);
      else
        write<__nv_bfloat16, V>(static_cast<__nv_bfloat16*>(a.weights) + at, p);
    }
  }
  if (a.zero_gradient) write<G, V>(gradient, g);
}

template <typename G, int V>
__device__ __forceinline__ void clear_vector(G* gradient) {
  const float zero[V] = {};
  write<G, V>(gradient, zero);
}

// `whole`: how many numbers go in vectors; the rest one by one.
template <Rule rule, typename G, typename P, typename S, int V>
__global__ void __launch_bounds__(kUpdateThreads) update_kernel(Update a, std::int64_t whole) {
  __shared__ UpdateNumbers shared;
  const bool skip = a.control->skip != 0;
  if (skip && !a.zero_gradient) return;
  if (threadIdx.x == 0 && !skip) shared = numbers_of(a);
  __syncthreads();
  const UpdateNumbers n = shared;
  const std::int64_t thread = std::int64_t(blockIdx.x) * kUpdateThreads + threadIdx.x;
  const std::int64_t threads = std::int64_t(gridDim.x) * kUpdateThreads;
  for (std::int64_t at = thread * V; at < whole; at += threads * V) {
    if (skip)
      clear_vector<G, V>(static_cast<G*>(a.gradient) + at);
    else
      update_vector<rule, G, P, S, V>(a, n, at);
  }
  for (std::int64_t at = whole + thread; at < a.count; at += threads) {
    if (skip)
      clear_vector<G, 1>(static_cast<G*>(a.gradient) + at);
    else
      update_vector<rule, G, P, S, 1>(a, n, at);
  }
}

template <Rule rule, typename G, typename P, typename S>
void launch_update(const Update& a, Stream stream) {
  constexpr int V = 16 / sizeof(P);
  const bool aligned = aligned16(a.gradient) && aligned16(a.exact) && aligned16(a.weights) && aligned16(a.first) && aligned16(a.second);
  const std::int64_t whole = aligned ? a.count / V * V : 0;
  const auto blocks = unsigned(std::min<std::int64_t>(ceil_div(a.count, aligned ? kUpdateThreads * V : kUpdateThreads), 132 * 16));
  update_kernel<rule, G, P, S, V><<<blocks, kUpdateThreads, 0, native(stream)>>>(a, whole);
  launched("update");
}

// Masters are f32 with f32 states; bf16 weights that are their own masters have bf16 states, or f32 ones where the rule keeps few.
template <Rule rule>
void update_by(const Update& a, Stream stream) {
  if (a.count == 0) return;
  by_type(a.gradient_type, [&]<typename G>(G) {
    if (a.exact_type == Type::f32) return launch_update<rule, G, float, float>(a, stream);
    if constexpr (!std::is_same_v<G, __half>) {
      if (a.state_type == Type::bf16) return launch_update<rule, G, __nv_bfloat16, __nv_bfloat16>(a, stream);
      if constexpr (rule == Rule::adamw) return launch_update<rule, G, __nv_bfloat16, float>(a, stream);
    }
    throw std::runtime_error("CUDA kernel update: no such mixture of types");
  });
}

void update_adamw(const Update&, Stream);
void update_lion(const Update&, Stream);
void update_sgd(const Update&, Stream);
void update_apply(const Update&, Stream);

}  // namespace lockstep::kernels::cuda
