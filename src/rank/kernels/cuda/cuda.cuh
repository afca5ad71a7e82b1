// What the CUDA kernels share: number types, 16-byte vectors, sums over a block, launches that report their errors.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string>
#include <type_traits>

#include "base/ceil_div.h"
#include "rank/kernels/table.h"

namespace lockstep::kernels::cuda {

// Most rows of scratch that column sums use: eight blocks for each of the processors of an H200.
inline constexpr int kPartialRows = 1056;

__device__ __forceinline__ float load(float x) { return x; }
__device__ __forceinline__ float load(__nv_bfloat16 x) { return __bfloat162float(x); }
__device__ __forceinline__ float load(__half x) { return __half2float(x); }
__device__ __forceinline__ void store(float& out, float x) { out = x; }
__device__ __forceinline__ void store(__nv_bfloat16& out, float x) { out = __float2bfloat16_rn(x); }
__device__ __forceinline__ void store(__half& out, float x) { out = __float2half_rn(x); }

// Accesses are of 16 bytes at most: where V numbers are more, memory need be no better aligned than that.
template <typename T, int V>
inline constexpr int kAlignment = sizeof(T) * V < 16 ? sizeof(T) * V : 16;

// V neighboring numbers, moved in one access.
template <typename T, int V>
struct alignas(kAlignment<T, V>) Vector {
  T value[V];
};

template <typename T>
inline constexpr int kFullVector = 16 / sizeof(T);

// V neighboring numbers of T that wait as they lie in memory, in words of 32 bits: 16-bit numbers of a Vector that waits take a register
// each.
template <typename T, int V>
struct alignas(kAlignment<T, V>) Packed {
  using Word = std::conditional_t<sizeof(T) * V % 4 == 0, std::uint32_t, T>;
  Word words[sizeof(T) * V / sizeof(Word)];
};

template <int V, typename T>
__device__ __forceinline__ Packed<T, V> packed(const T* from) {
  return *reinterpret_cast<const Packed<T, V>*>(from);
}

template <typename T, int V>
__device__ __forceinline__ void unpack(const Packed<T, V>& from, float (&to)[V]) {
  if constexpr (std::is_same_v<T, __nv_bfloat16> && V % 2 == 0) {
#pragma unroll
    for (int i = 0; i < V; i += 2) {
      to[i] = __uint_as_float(from.words[i / 2] << 16);
      to[i + 1] = __uint_as_float(from.words[i / 2] & 0xffff0000u);
    }
  } else {
    T numbers[V];
    memcpy(numbers, from.words, sizeof(numbers));
#pragma unroll
    for (int i = 0; i < V; ++i) to[i] = load(numbers[i]);
  }
}

template <typename T, int V>
__device__ __forceinline__ Packed<T, V> pack(const float (&from)[V]) {
  Packed<T, V> to;
  if constexpr (std::is_same_v<T, __nv_bfloat16> && V % 2 == 0) {  // one instruction rounds two
#pragma unroll
    for (int i = 0; i < V; i += 2) {
      const __nv_bfloat162 pair = __floats2bfloat162_rn(from[i], from[i + 1]);
      memcpy(to.words + i / 2, &pair, sizeof(pair));
    }
  } else {
    T numbers[V];
#pragma unroll
    for (int i = 0; i < V; ++i) store(numbers[i], from[i]);
    memcpy(to.words, numbers, sizeof(numbers));
  }
  return to;
}

template <typename T, int V>
__device__ __forceinline__ void read(const T* from, float (&to)[V]) {
  unpack(packed<V>(from), to);
}

template <typename T, int V>
__device__ __forceinline__ void write(T* to, const float (&from)[V]) {
  *reinterpret_cast<Packed<T, V>*>(to) = pack<T>(from);
}

// The value as it will be read back from memory.
template <typename T>
__device__ __forceinline__ float rounded(float x) {
  T stored;
  store(stored, x);
  return load(stored);
}

__device__ __forceinline__ float warp_sum(float x) {
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) x += __shfl_xor_sync(0xffffffffu, x, offset);
  return x;
}

// Sum over the block, the same on every thread. blockDim.x is a multiple of 32. Two calls in a row need different `scratch`
// (32 floats) or a __syncthreads() between them.
__device__ __forceinline__ float block_sum(float x, float* scratch) {
  x = warp_sum(x);
  if (blockDim.x == 32) return x;
  if (threadIdx.x % 32 == 0) scratch[threadIdx.x / 32] = x;
  __syncthreads();
  x = threadIdx.x % 32 < blockDim.x / 32 ? scratch[threadIdx.x % 32] : 0.0f;
  return warp_sum(x);
}

inline void launched(const char* what) {
  if (const auto error = cudaGetLastError(); error != cudaSuccess)
    throw std::runtime_error(std::string("CUDA kernel ") + what + " did not start: " + cudaGetErrorString(error));
}

inline cudaStream_t native(Stream stream) { return static_cast<cudaStream_t>(stream); }
using base::ceil_div;
inline int processors() {
  int device = 0, count = 1;
  cudaGetDevice(&device);
  cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device);
  return count;
}
inline bool aligned16(const void* pointer) { return reinterpret_cast<std::uintptr_t>(pointer) % 16 == 0; }

template <typename F>
void by_type(Type type, F body) {
  switch (type) {
    case Type::f32: return body(float{});
    case Type::bf16: return body(__nv_bfloat16{});
    case Type::f16: return body(__half{});
  }
}

// dweight[i] += sum of partials[0..rows)[i]: the second half of every column sum. Rows are `stride` floats apart.
void add_partials(const float* partials, int rows, std::int64_t stride, std::int64_t width, void* target, Type type, cudaStream_t stream);

LOCKSTEP_OPS(LOCKSTEP_DECLARE_OP)
bool matmul(const Matmul&, Stream);
void gate_up_swiglu(const GateUpSwiglu&, Stream);
void down_backward_swiglu(const DownBackwardSwiglu&, Stream);
const Table& table();

}  // namespace lockstep::kernels::cuda
