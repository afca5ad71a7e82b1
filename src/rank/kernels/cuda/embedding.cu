// Embedding look-up on CUDA, and its gradient without atomics: rows of equal tokens are neighbors in `order`, so a block sums
// them in f32 and adds once. Right for 16-bit gradients too, and the same every time. Rows are cut into stretches of
// kEmbeddingStretch: a token that crosses a cut (padding may be most of a batch) has its parts summed by a block each.
#include "rank/kernels/cuda/cuda.cuh"

namespace lockstep::kernels::cuda {

namespace {

constexpr int kThreads = 128;

template <typename T, int V>
__global__ void forward(EmbeddingForward a) {
  const std::int64_t row = blockIdx.x;
  const auto* from = static_cast<const T*>(a.weight) + a.tokens[row] * a.width;
  auto* to = static_cast<T*>(a.out) + row * a.width;
  for (std::int64_t column = std::int64_t(threadIdx.x) * V; column < a.width; column += std::int64_t(kThreads) * V)
    *reinterpret_cast<Vector<T, V>*>(to + column) = *reinterpret_cast<const Vector<T, V>*>(from + column);
}

// Where a stretch's part of a token that goes on before or after it is kept.
__device__ __forceinline__ float* part(const EmbeddingBackward& a, std::int64_t stretch, bool comes_from_before) {
  return a.partials + (2 * stretch + (comes_from_before ? 0 : 1)) * a.width;
}

// V neighbors of a gradient, in accesses of at most 16 bytes.
template <typename G, int V>
struct Gradient {
  static constexpr int W = V < kFullVector<G> ? V : kFullVector<G>;
  Packed<G, W> parts[V / W];
  __device__ __forceinline__ explicit Gradient(const G* from) {
#pragma unroll
    for (int p = 0; p < V / W; ++p) parts[p] = packed<W>(from + p * W);
  }
  __device__ __forceinline__ void write_with(const float (&sum)[V], G* to) const {
#pragma unroll
    for (int p = 0; p < V / W; ++p) {
      float numbers[W];
      unpack(parts[p], numbers);
#pragma unroll
      for (int i = 0; i < W; ++i) numbers[i] += sum[p * W + i];
      write<G, W>(to + p * W, numbers);
    }
  }
};

// Block x is a place in the sorted rows; it works where a token begins there, or goes on over a cut. Most tokens of a batch come once or
// twice, so what counts is that the token's gradient and its first two rows are asked for together.
constexpr int kRows = 2;  // in flight

template <typename T, typename G, int V>
__global__ void __launch_bounds__(kThreads) backward(EmbeddingBackward a) {
  const std::int64_t first = blockIdx.x;
  const std::int64_t token = a.tokens[first];
  const bool comes_from_before = first > 0 && a.tokens[first - 1] == token;
  if (comes_from_before && first % kEmbeddingStretch != 0) return;  // another block's part
  const std::int64_t column = (std::int64_t(blockIdx.y) * kThreads + threadIdx.x) * V;
  if (column >= a.width) return;
  const std::int64_t stretch = first / kEmbeddingStretch, cut = min(a.rows, (stretch + 1) * kEmbeddingStretch);
  auto* dweight = static_cast<G*>(a.dweight) + token * a.width + column;
  const Gradient<G, V> before(dweight);
  const auto* dout = static_cast<const T*>(a.dout) + column;
  float sum[V] = {};
  bool goes_on = true;
  for (std::int64_t at = first; goes_on && at < cut; at += kRows) {
    Packed<T, V> more[kRows];
    bool there[kRows];
#pragma unroll
    for (int n = 0; n < kRows; ++n) {
      there[n] = at + n < cut && a.tokens[at + n] == token;
      if (there[n]) more[n] = packed<V>(dout + a.order[at + n] * a.width);
    }
#pragma unroll
    for (int n = 0; n < kRows; ++n)
      if (there[n]) {
        float numbers[V];
        unpack(more[n], numbers);
#pragma unroll
        for (int i = 0; i < V; ++i) sum[i] += numbers[i];
      }
    goes_on = there[kRows - 1];
  }
  const bool crosses = a.tokens[cut - 1] == token && cut < a.rows && a.tokens[cut] == token;
  if (comes_from_before || crosses) return write<float, V>(part(a, stretch, comes_from_before) + column, sum);
  before.write_with(sum, dweight);
}

// Block x is a stretch; it works where a token begins in it and crosses its end, and adds up that token's parts in order.
template <typename G>
__global__ void add_parts(EmbeddingBackward a) {
  const std::int64_t cut = (blockIdx.x + std::int64_t(1)) * kEmbeddingStretch;
  const std::int64_t token = a.tokens[cut];
  const std::int64_t begin = cut - kEmbeddingStretch;
  if (a.tokens[cut - 1] != token || (begin > 0 && a.tokens[begin - 1] == token)) return;
  const std::int64_t column = std::int64_t(blockIdx.y) * kThreads + threadIdx.x;
  if (column >= a.width) return;
  float sum = part(a, blockIdx.x, false)[column];
#pragma unroll 8
  for (std::int64_t at = cut; at < a.rows && a.tokens[at] == token; at += kEmbeddingStretch)
    sum += part(a, at / kEmbeddingStretch, true)[column];
  auto& dweight = static_cast<G*>(a.dweight)[token * a.width + column];
  store(dweight, load(dweight) + sum);
}

}  // namespace

void embedding_forward(const EmbeddingForward& a, Stream stream) {
  if (a.rows == 0) return;
  by_type(a.type, [&]<typename T>(T) {
    constexpr int full = kFullVector<T>;
    if (a.width % full == 0 && aligned16(a.weight) && aligned16(a.out)) {
      forward<T, full><<<unsigned(a.rows), kThreads, 0, native(stream)>>>(a);
    } else {
      forward<T, 1><<<unsigned(a.rows), kThreads, 0, native(stream)>>>(a);
    }
  });
  launched("embedding_forward");
}

void embedding_backward(const EmbeddingBackward& a, Stream stream) {
  if (a.rows == 0) return;
  by_type(a.type, [&]<typename T>(T) {
    by_type(a.gradient_type, [&]<typename G>(G) {
      constexpr int full = kFullVector<T>;
      const bool can = a.width % full == 0 && aligned16(a.dout) && aligned16(a.dweight);
      const auto columns = unsigned(ceil_div(ceil_div(a.width, can ? full : 1), kThreads));
      if (can) {
        backward<T, G, full><<<dim3(unsigned(a.rows), columns), kThreads, 0, native(stream)>>>(a);
      } else {
        backward<T, G, 1><<<dim3(unsigned(a.rows), columns), kThreads, 0, native(stream)>>>(a);
      }
      const auto cuts = unsigned((a.rows - 1) / kEmbeddingStretch);
      if (cuts > 0) add_parts<G><<<dim3(cuts, unsigned(ceil_div(a.width, kThreads))), kThreads, 0, native(stream)>>>(a);
    });
  });
  launched("embedding_backward");
}

}  // namespace lockstep::kernels::cuda
