// Embedding look-up on CUDA, and its gradient without atomics: rows of equal tokens are neighbours in `order`, so one block sums
// them in f32 and adds once. Right for 16-bit gradients too, and the same every time.
#include "rank/kernels/cuda.cuh"

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

template <typename T, typename G, int V>
__global__ void backward(EmbeddingBackward a) {
  const std::int64_t first = blockIdx.x;
  const std::int64_t token = a.tokens[first];
  if (first > 0 && a.tokens[first - 1] == token) return;  // another block's stretch
  const std::int64_t column = (std::int64_t(blockIdx.y) * kThreads + threadIdx.x) * V;
  if (column >= a.width) return;
  const auto* dout = static_cast<const T*>(a.dout) + column;
  float sum[V] = {};
  // Four rows in flight: a frequent token has thousands, and each waits for memory.
  std::int64_t at = first;
  while (at < a.rows && a.tokens[at] == token) {
    float more[4][V];
    bool there[4];
#pragma unroll
    for (int n = 0; n < 4; ++n) {
      there[n] = at + n < a.rows && a.tokens[at + n] == token;
      if (there[n]) read<T, V>(dout + a.order[at + n] * a.width, more[n]);
    }
#pragma unroll
    for (int n = 0; n < 4; ++n)
      if (there[n]) {
#pragma unroll
        for (int i = 0; i < V; ++i) sum[i] += more[n][i];
      }
    at += 4;
  }
  auto* dweight = static_cast<G*>(a.dweight) + token * a.width + column;
#pragma unroll
  for (int i = 0; i < V; ++i) store(dweight[i], load(dweight[i]) + sum[i]);
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
      const bool can = a.width % full == 0 && aligned16(a.dout);
      const auto columns = unsigned(ceil_div(ceil_div(a.width, can ? full : 1), kThreads));
      if (can) {
        backward<T, G, full><<<dim3(unsigned(a.rows), columns), kThreads, 0, native(stream)>>>(a);
      } else {
        backward<T, G, 1><<<dim3(unsigned(a.rows), columns), kThreads, 0, native(stream)>>>(a);
      }
    });
  });
  launched("embedding_backward");
}

}  // namespace lockstep::kernels::cuda
