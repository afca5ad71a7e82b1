// Embedding look-up and its gradient on a CPU.
#include "rank/kernels/cpu/ops.h"

namespace lockstep::kernels::LOCKSTEP_ISA {

namespace {

// f32 gradients: row after row, straight into the matrix.
template <typename T>
void add_rows(const EmbeddingBackward& a, std::int64_t begin, std::int64_t end) {
  for (std::int64_t row = 0; row < a.rows; ++row) {
    const auto* dout = static_cast<const T*>(a.dout) + row * a.width;
    auto* dweight = static_cast<float*>(a.dweight) + a.tokens[row] * a.width;
#pragma omp simd
    for (auto i = begin; i < end; ++i) dweight[i] += load(dout[i]);
  }
}

// 16-bit gradients: rows of one token are summed in f32 first, or small contributions would be rounded away.
template <typename T, typename G>
void add_stretches(const EmbeddingBackward& a, std::int64_t begin, std::int64_t end) {
  constexpr std::int64_t kColumns = 256;
  float sum[kColumns];
  for (auto column = begin; column < end; column += kColumns) {
    const auto width = end - column < kColumns ? end - column : kColumns;
    for (std::int64_t first = 0; first < a.rows;) {
      for (std::int64_t i = 0; i < width; ++i) sum[i] = 0;
      auto last = first;
      for (; last < a.rows && a.tokens[last] == a.tokens[first]; ++last) {
        const auto* dout = static_cast<const T*>(a.dout) + a.order[last] * a.width + column;
#pragma omp simd
        for (std::int64_t i = 0; i < width; ++i) sum[i] += load(dout[i]);
      }
      auto* dweight = static_cast<G*>(a.dweight) + a.tokens[first] * a.width + column;
#pragma omp simd
      for (std::int64_t i = 0; i < width; ++i) store(dweight[i], load(dweight[i]) + sum[i]);
      first = last;
    }
  }
}

}  // namespace

void embedding_forward(const EmbeddingForward& a, Stream) {
  const std::int64_t row_bytes = a.width * (a.type == Type::f32 ? 4 : 2);
  parallel(a.rows, grain_rows(a.width), [&](std::int64_t begin, std::int64_t end) {
    for (auto row = begin; row < end; ++row)
      std::memcpy(static_cast<char*>(a.out) + row * row_bytes, static_cast<const char*>(a.weight) + a.tokens[row] * row_bytes, row_bytes);
  });
}

void embedding_backward(const EmbeddingBackward& a, Stream) {
  // Threads take columns, not rows: no two write the same number, and the order of a sum does not depend on their count.
  by_type(a.type, [&]<typename T>(T) {
    by_type(a.gradient_type, [&]<typename G>(G) {
      parallel(a.width, 64, [&](std::int64_t begin, std::int64_t end) {
        if constexpr (sizeof(G) == 4) {
          add_rows<T>(a, begin, end);
        } else {
          add_stretches<T, G>(a, begin, end);
        }
      });
    });
  });
}

}  // namespace lockstep::kernels::LOCKSTEP_ISA
