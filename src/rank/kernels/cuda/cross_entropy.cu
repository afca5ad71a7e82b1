// Cross-entropy of a chunk of logits on CUDA: a block a row, one pass for maximum and sum together, one that turns logits into their
// gradient. Between them the row waits in registers and shared memory, so that memory is read once and written once; of a row that is
// longer than both together (173,000 logits of bf16 on an H200, where 128,256 move at 94 % of memory's speed) the end is read twice.
#include <cuda_pipeline.h>

#include <algorithm>

#include "rank/kernels/cuda/cuda.cuh"

namespace lockstep::kernels::cuda {

namespace {

constexpr int kWide = 4;  // vectors beyond the registers that a thread has in flight
constexpr float kLog2e = 1.4426950408889634f;

__device__ __forceinline__ float exp2_of(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// A sum of exponentials relative to its own maximum.
struct Softmax {
  float top, sum;
};

// What a logit times log2(e) is moved by before it becomes a power of two. Where every logit so far is -inf there is no maximum, and
// -inf less itself would be NaN.
__device__ __forceinline__ float moved_by(float top) { return top == -INFINITY ? 0.0f : -top * kLog2e; }

// The sum relative to a maximum that is at least its own.
__device__ __forceinline__ float sum_below(Softmax s, float minus) { return s.sum * exp2_of(fmaf(s.top, kLog2e, minus)); }

__device__ __forceinline__ Softmax warp_merged(Softmax mine) {
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) {
    const Softmax other{__shfl_xor_sync(0xffffffffu, mine.top, offset), __shfl_xor_sync(0xffffffffu, mine.sum, offset)};
    const float top = fmaxf(mine.top, other.top), minus = moved_by(top);
    mine = {top, sum_below(mine, minus) + sum_below(other, minus)};
  }
  return mine;
}

// Logits of -inf: they change no maximum and no sum.
template <typename T, int V>
__device__ __forceinline__ Packed<T, V> nothing() {
  Packed<T, V> v;
  constexpr std::uint32_t one = std::is_same_v<T, __half> ? 0xfc00u : 0xff80u, word = sizeof(T) == 4 ? 0xff800000u : one << 16 | one;
  for (auto& w : v.words) memcpy(&w, &word, sizeof(w));
  return v;
}

// NaN does not count here; it stays in the sum.
template <typename T, int V>
__device__ __forceinline__ float largest(const Packed<T, V>& x) {
  if constexpr (sizeof(T) == 2 && V % 2 == 0) {
    using Pair = std::conditional_t<std::is_same_v<T, __half>, __half2, __nv_bfloat162>;
    Pair pairs[V / 2];
    memcpy(pairs, x.words, sizeof(pairs));
#pragma unroll
    for (int i = 1; i < V / 2; ++i) pairs[0] = __hmax2(pairs[0], pairs[i]);
    return fmaxf(load(pairs[0].x), load(pairs[0].y));
  } else {
    float numbers[V], top = -INFINITY;
    unpack(x, numbers);
#pragma unroll
    for (int i = 0; i < V; ++i) top = fmaxf(top, numbers[i]);
    return top;
  }
}

template <typename T, int V, int N>
__device__ __forceinline__ Softmax grown(Softmax mine, const Packed<T, V> (&x)[N]) {
  float top = mine.top;
#pragma unroll
  for (int n = 0; n < N; ++n) top = fmaxf(top, largest(x[n]));
  const float minus = moved_by(top);
  float sum = sum_below(mine, minus);
#pragma unroll
  for (int n = 0; n < N; ++n) {
    float numbers[V], more = 0;
    unpack(x[n], numbers);
#pragma unroll
    for (int i = 0; i < V; ++i) more += exp2_of(fmaf(numbers[i], kLog2e, minus));
    sum += more;
  }
  return {top, sum};
}

// What turns a row's logits into their gradient.
struct Slope {
  float minus, factor, scale;
  int vector, place;  // of the target
};

template <typename T, int V>
__device__ __forceinline__ void write_gradient(T* numbers, int vector, const Packed<T, V>& x, const Slope& slope) {
  float gradient[V];
  unpack(x, gradient);
#pragma unroll
  for (int i = 0; i < V; ++i) gradient[i] = exp2_of(fmaf(gradient[i], kLog2e, slope.minus)) * slope.factor;
  if (vector == slope.vector) {
#pragma unroll
    for (int i = 0; i < V; ++i)
      if (i == slope.place) gradient[i] -= slope.scale;
  }
  write<T, V>(numbers + std::int64_t(vector) * V, gradient);
}

// A thread's first K vectors wait in registers, the block's next `keep` in shared memory, which copies fill unwatched.
template <typename T, int V, int K, int Threads>
__global__ void __launch_bounds__(Threads, 1024 / Threads) rows_of(CrossEntropy a, int keep) {
  extern __shared__ uint4 shared[];
  __shared__ Softmax warps[32];
  constexpr int held = K * Threads;
  auto* kept = reinterpret_cast<Packed<T, V>*>(shared);
  const std::int64_t row = blockIdx.x;
  const int vectors = int(a.vocab / V), self = int(threadIdx.x);
  auto* numbers = static_cast<T*>(a.logits) + row * a.vocab;
  const auto* logits = reinterpret_cast<const Packed<T, V>*>(numbers);
  const std::int64_t target = a.targets[row];
  if (target < 0) {  // -100: not trained
    if (self == 0) a.losses[row] = 0;
    if (self == 0 && a.correct) a.correct[row] = 0;
    const float zero[V] = {};
    for (int i = self; a.gradient && i < vectors; i += Threads) write<T, V>(numbers + std::int64_t(i) * V, zero);
    return;
  }

  Packed<T, V> x[K];
#pragma unroll
  for (int k = 0; k < K; ++k) x[k] = k * Threads + self < vectors ? logits[k * Threads + self] : nothing<T, V>();
  if constexpr (sizeof(Packed<T, V>) == 16) {
    for (int i = held + self; i < held + keep; i += Threads) __pipeline_memcpy_async(kept + i - held, logits + i, 16);
    __pipeline_commit();
  }
  const float at_target = load(numbers[target]);  // before the barriers, after which it is overwritten
  Softmax softmax = grown({-INFINITY, 0}, x);
  __pipeline_wait_prior(0);
  // A thread reads back what it copied itself.
  const auto beyond_registers = [&](int first, Packed<T, V>(&y)[kWide]) {
#pragma unroll
    for (int n = 0; n < kWide; ++n) {
      const int i = first + n * Threads;
      y[n] = i < held + keep ? kept[i - held] : i < vectors ? logits[i] : nothing<T, V>();
    }
  };
  for (int first = held + self; first < vectors; first += kWide * Threads) {
    Packed<T, V> y[kWide];
    beyond_registers(first, y);
    softmax = grown(softmax, y);
  }
  softmax = warp_merged(softmax);
  if (self % 32 == 0) warps[self / 32] = softmax;
  __syncthreads();
  softmax = warp_merged(self % 32 < Threads / 32 ? warps[self % 32] : Softmax{-INFINITY, 0});

  if (self == 0) a.losses[row] = logf(softmax.sum) + softmax.top - at_target;
  if (a.correct) {  // of equal logits the first counts
    const bool top = at_target >= softmax.top;
    bool earlier = false;
    for (std::int64_t i = self; top && i < target; i += Threads) earlier |= load(numbers[i]) >= softmax.top;
    earlier = __syncthreads_or(earlier);
    if (self == 0) a.correct[row] = top && !earlier ? 1.0f : 0.0f;
  }
  if (!a.gradient) return;
  const float scale = *a.scale;
  const Slope slope{moved_by(softmax.top), scale / softmax.sum, scale, int(target / V), int(target % V)};
#pragma unroll
  for (int k = 0; k < K; ++k)
    if (k * Threads + self < vectors) write_gradient(numbers, k * Threads + self, x[k], slope);
  for (int first = held + self; first < vectors; first += kWide * Threads) {
    Packed<T, V> y[kWide];
    beyond_registers(first, y);
#pragma unroll
    for (int n = 0; n < kWide; ++n)
      if (first + n * Threads < vectors) write_gradient(numbers, first + n * Threads, y[n], slope);
  }
}

// What a processor of this device can lend a block: 227 KiB on an H200.
std::size_t shared_bytes() {
  int device = 0, bytes = 48 << 10;
  cudaGetDevice(&device);
  cudaDeviceGetAttribute(&bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
  return std::size_t(bytes);
}

template <typename T, int V, int K>
void launch_long(const CrossEntropy& a, cudaStream_t stream) {
  constexpr int threads = 1024;
  const auto most = (shared_bytes() - 1024) / sizeof(Packed<T, V>);  // less what every block takes beside it
  const auto keep = a.gradient ? std::min<std::int64_t>(std::int64_t(most), std::max<std::int64_t>(0, a.vocab / V - K * threads)) : 0;
  const auto bytes = std::size_t(keep) * sizeof(Packed<T, V>);
  cudaFuncSetAttribute(rows_of<T, V, K, threads>, cudaFuncAttributeMaxDynamicSharedMemorySize, int(bytes));
  rows_of<T, V, K, threads><<<unsigned(a.rows), threads, bytes, stream>>>(a, int(keep));
}

}  // namespace

// Rows that registers hold share a processor two by two, which leaves it no idle moment; longer ones take it whole. How many vectors of
// those wait in registers is measured: six at 49,152 and 128,256 logits, eight at 152,064 (3 to 7 % against the other).
void cross_entropy(const CrossEntropy& a, Stream stream) {
  if (a.rows == 0) return;
  by_type(a.type, [&]<typename T>(T) {
    constexpr int full = kFullVector<T>;
    if (a.vocab % full != 0 || !aligned16(a.logits)) {
      rows_of<T, 1, 8, 512><<<unsigned(a.rows), 512, 0, native(stream)>>>(a, 0);
    } else if (a.vocab / full <= 8 * 512) {
      rows_of<T, full, 8, 512><<<unsigned(a.rows), 512, 0, native(stream)>>>(a, 0);
    } else if (a.vocab / full <= 18 * 1024) {
      launch_long<T, full, 6>(a, native(stream));
    } else {
      launch_long<T, full, 8>(a, native(stream));
    }
  });
  launched("cross_entropy");
}

}  // namespace lockstep::kernels::cuda
