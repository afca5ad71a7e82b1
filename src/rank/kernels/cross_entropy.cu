// Cross-entropy of a chunk of logits on CUDA: a block a row, one pass for maximum and sum together, one that turns logits into
// their gradient. What fits of the row waits in shared memory between them, so that memory is read about once and written once.
#include "rank/kernels/cuda.cuh"

namespace lockstep::kernels::cuda {

namespace {

constexpr int kWide = 4;  // vectors that a thread has in flight

// A sum of exponentials relative to its own maximum; two of them merge.
struct Softmax {
  float top, sum;
};

__device__ __forceinline__ Softmax merged(Softmax a, Softmax b) {
  const float top = fmaxf(a.top, b.top);
  if (top == -INFINITY) return {top, a.sum + b.sum};  // nothing seen yet: exp(inf - inf) would be NaN
  return {top, a.sum * __expf(a.top - top) + b.sum * __expf(b.top - top)};
}

// The row's vectors, in turns of kWide a thread. body(index of the vector, its place among the thread's kWide).
template <int Threads, typename F>
__device__ __forceinline__ void in_flight(std::int64_t first, std::int64_t vectors, F body) {
#pragma unroll
  for (int n = 0; n < kWide; ++n)
    if (const auto i = first + n * Threads; i < vectors) body(i, n);
}

template <typename T, int V, int Threads>
__device__ Softmax row_softmax(const Vector<T, V>* logits, std::int64_t vectors, Vector<T, V>* kept, int keep) {
  __shared__ Softmax scratch[Threads / 32];
  Softmax mine{-INFINITY, 0};
  for (std::int64_t first = threadIdx.x; first < vectors; first += Threads * kWide) {
    Vector<T, V> x[kWide];
    in_flight<Threads>(first, vectors, [&](std::int64_t i, int n) { x[n] = logits[i]; });
    float top = mine.top;
    bool broken = false;  // fmaxf drops NaN, the sum must not
    in_flight<Threads>(first, vectors, [&](std::int64_t i, int n) {
      if (i < keep) kept[i] = x[n];
#pragma unroll
      for (int j = 0; j < V; ++j) {
        top = fmaxf(top, load(x[n].value[j]));
        broken |= load(x[n].value[j]) != load(x[n].value[j]);
      }
    });
    float sum = mine.top == -INFINITY ? mine.sum : mine.sum * __expf(mine.top - top);
    in_flight<Threads>(first, vectors, [&](std::int64_t, int n) {
#pragma unroll
      for (int j = 0; j < V; ++j) sum += __expf(load(x[n].value[j]) - top);
    });
    if (broken) sum = NAN;
    mine = {top, sum};
  }
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2)
    mine = merged(mine, {__shfl_xor_sync(0xffffffffu, mine.top, offset), __shfl_xor_sync(0xffffffffu, mine.sum, offset)});
  if (threadIdx.x % 32 == 0) scratch[threadIdx.x / 32] = mine;
  __syncthreads();
  mine = threadIdx.x % 32 < Threads / 32 ? scratch[threadIdx.x % 32] : Softmax{-INFINITY, 0};
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2)
    mine = merged(mine, {__shfl_xor_sync(0xffffffffu, mine.top, offset), __shfl_xor_sync(0xffffffffu, mine.sum, offset)});
  return mine;
}

// keep: vectors of a row that shared memory holds.
template <typename T, int V, int Threads>
__global__ void __launch_bounds__(Threads, 1024 / Threads) rows_of(CrossEntropy a, int keep) {
  extern __shared__ uint4 shared[];
  auto* kept = reinterpret_cast<Vector<T, V>*>(shared);
  const std::int64_t row = blockIdx.x, vectors = a.vocab / V;
  auto* numbers = static_cast<T*>(a.logits) + row * a.vocab;
  auto* logits = reinterpret_cast<Vector<T, V>*>(numbers);
  const std::int64_t target = a.targets[row];
  if (target < 0) {  // -100: not trained
    if (threadIdx.x == 0) a.losses[row] = 0;
    if (threadIdx.x == 0 && a.correct) a.correct[row] = 0;
    if (!a.gradient) return;
    const float zero[V] = {};
    for (std::int64_t i = threadIdx.x; i < vectors; i += Threads) write<T, V>(numbers + i * V, zero);
    return;
  }
  const Softmax softmax = row_softmax<T, V, Threads>(logits, vectors, kept, keep);
  const float at_target = load(numbers[target]);
  if (threadIdx.x == 0) a.losses[row] = logf(softmax.sum) + softmax.top - at_target;
  if (a.correct) {  // of equal logits the first counts
    const bool top = at_target >= softmax.top;
    bool earlier = false;
    for (std::int64_t i = threadIdx.x; top && i < target; i += Threads) earlier |= load(numbers[i]) >= softmax.top;
    earlier = __syncthreads_or(earlier);
    if (threadIdx.x == 0) a.correct[row] = top && !earlier ? 1.0f : 0.0f;
  }
  if (!a.gradient) return;
  __syncthreads();  // every thread has read the target's logit before one overwrites it
  const float scale = *a.scale, factor = scale / softmax.sum;
  for (std::int64_t first = threadIdx.x; first < vectors; first += Threads * kWide) {
    Vector<T, V> x[kWide];
    // A thread reads back what it kept itself.
    in_flight<Threads>(first, vectors, [&](std::int64_t i, int n) { x[n] = i < keep ? kept[i] : logits[i]; });
    in_flight<Threads>(first, vectors, [&](std::int64_t i, int n) {
      float gradient[V];
#pragma unroll
      for (int j = 0; j < V; ++j) {
        gradient[j] = __expf(load(x[n].value[j]) - softmax.top) * factor;
        if (i * V + j == target) gradient[j] -= scale;
      }
      write<T, V>(numbers + i * V, gradient);
    });
  }
}

// What a processor of this device can lend a block: 227 KiB on an H200.
std::size_t shared_bytes() {
  int device = 0, bytes = 48 << 10;
  cudaGetDevice(&device);
  cudaDeviceGetAttribute(&bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
  return std::size_t(bytes);
}

// Rows that share a processor two by two leave it no idle moment; longer ones take it whole.
template <typename T, int V, int Threads>
void launch(const CrossEntropy& a, cudaStream_t stream) {
  const auto most = shared_bytes() * Threads / 1024 - 1024;  // less what every block takes beside it
  const auto keep = a.gradient ? std::min<std::size_t>(most / sizeof(Vector<T, V>), std::size_t(a.vocab / V)) : 0;
  const auto bytes = keep * sizeof(Vector<T, V>);
  cudaFuncSetAttribute(rows_of<T, V, Threads>, cudaFuncAttributeMaxDynamicSharedMemorySize, int(bytes));
  rows_of<T, V, Threads><<<unsigned(a.rows), Threads, bytes, stream>>>(a, int(keep));
}

}  // namespace

void cross_entropy(const CrossEntropy& a, Stream stream) {
  if (a.rows == 0) return;
  by_type(a.type, [&]<typename T>(T) {
    constexpr int full = kFullVector<T>;
    if (a.vocab % full != 0 || !aligned16(a.logits)) {
      rows_of<T, 1, 512><<<unsigned(a.rows), 512, 0, native(stream)>>>(a, 0);
    } else if (std::size_t(a.vocab) * sizeof(T) < shared_bytes() / 2 - 1024) {
      launch<T, full, 512>(a, native(stream));
    } else {
      launch<T, full, 1024>(a, native(stream));
    }
  });
  launched("cross_entropy");
}

}  // namespace lockstep::kernels::cuda
