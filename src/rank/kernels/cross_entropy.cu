// Cross-entropy of a chunk of logits on CUDA: a block a row, one pass for maximum and sum together, one that turns logits into
// their gradient. Moves 3 numbers a logit (read, read again from L2 where it fits, write).
#include "rank/kernels/cuda.cuh"

namespace lockstep::kernels::cuda {

namespace {

constexpr int kThreads = 512;

// A sum of exponentials relative to its own maximum; two of them merge.
struct Softmax {
  float top, sum;
};

__device__ __forceinline__ Softmax merged(Softmax a, Softmax b) {
  const float top = fmaxf(a.top, b.top);
  if (top == -INFINITY) return {top, a.sum + b.sum};  // nothing seen yet: exp(inf - inf) would be NaN
  return {top, a.sum * __expf(a.top - top) + b.sum * __expf(b.top - top)};
}

template <typename T, int V>
__device__ Softmax row_softmax(const T* logits, std::int64_t vocab) {
  __shared__ Softmax scratch[kThreads / 32];
  Softmax mine{-INFINITY, 0};
  for (std::int64_t i = std::int64_t(threadIdx.x) * V; i < vocab; i += std::int64_t(kThreads) * V) {
    float x[V];
    read<T, V>(logits + i, x);
    float top = x[0];
    bool broken = false;  // fmaxf drops NaN, the sum must not
#pragma unroll
    for (int j = 0; j < V; ++j) {
      top = fmaxf(top, x[j]);
      broken |= x[j] != x[j];
    }
    top = fmaxf(top, mine.top);
    float sum = mine.sum * __expf(mine.top - top);
    if (mine.top == -INFINITY) sum = mine.sum;
#pragma unroll
    for (int j = 0; j < V; ++j) sum += __expf(x[j] - top);
    if (broken) sum = NAN;
    mine = {top, sum};
  }
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2)
    mine = merged(mine, {__shfl_xor_sync(0xffffffffu, mine.top, offset), __shfl_xor_sync(0xffffffffu, mine.sum, offset)});
  if (threadIdx.x % 32 == 0) scratch[threadIdx.x / 32] = mine;
  __syncthreads();
  mine = threadIdx.x % 32 < kThreads / 32 ? scratch[threadIdx.x % 32] : Softmax{-INFINITY, 0};
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2)
    mine = merged(mine, {__shfl_xor_sync(0xffffffffu, mine.top, offset), __shfl_xor_sync(0xffffffffu, mine.sum, offset)});
  return mine;
}

template <typename T, int V>
__global__ void __launch_bounds__(kThreads) rows_of(CrossEntropy a) {
  const std::int64_t row = blockIdx.x;
  auto* logits = static_cast<T*>(a.logits) + row * a.vocab;
  const std::int64_t target = a.targets[row];
  if (target < 0) {  // -100: not trained
    if (threadIdx.x == 0) a.losses[row] = 0;
    if (!a.gradient) return;
    const float zero[V] = {};
    for (std::int64_t i = std::int64_t(threadIdx.x) * V; i < a.vocab; i += std::int64_t(kThreads) * V) write<T, V>(logits + i, zero);
    return;
  }
  const Softmax softmax = row_softmax<T, V>(logits, a.vocab);
  const float at_target = load(logits[target]);
  if (threadIdx.x == 0) a.losses[row] = logf(softmax.sum) + softmax.top - at_target;
  if (!a.gradient) return;
  __syncthreads();  // every thread has read the target's logit before one overwrites it
  const float scale = *a.scale, factor = scale / softmax.sum;
  for (std::int64_t i = std::int64_t(threadIdx.x) * V; i < a.vocab; i += std::int64_t(kThreads) * V) {
    float x[V];
    read<T, V>(logits + i, x);
#pragma unroll
    for (int j = 0; j < V; ++j) {
      x[j] = __expf(x[j] - softmax.top) * factor;
      if (i + j == target) x[j] -= scale;
    }
    write<T, V>(logits + i, x);
  }
}

}  // namespace

void cross_entropy(const CrossEntropy& a, Stream stream) {
  if (a.rows == 0) return;
  by_type(a.type, [&]<typename T>(T) {
    constexpr int full = kFullVector<T>;
    if (a.vocab % full == 0 && aligned16(a.logits)) {
      rows_of<T, full><<<unsigned(a.rows), kThreads, 0, native(stream)>>>(a);
    } else {
      rows_of<T, 1><<<unsigned(a.rows), kThreads, 0, native(stream)>>>(a);
    }
  });
  launched("cross_entropy");
}

}  // namespace lockstep::kernels::cuda
