// Embedding look-up and its gradient on a CPU.
#include "rank/kernels/cpu_ops.h"

namespace lockstep::kernels::LOCKSTEP_ISA {

void embedding_forward(const EmbeddingForward& a, Stream) {
  const std::int64_t row_bytes = a.width * (a.type == Type::f32 ? 4 : 2);
  parallel(a.rows, grain_rows(a.width), [&](std::int64_t begin, std::int64_t end) {
    for (auto row = begin; row < end; ++row)
      std::memcpy(static_cast<char*>(a.out) + row * row_bytes, static_cast<const char*>(a.weight) + a.tokens[row] * row_bytes, row_bytes);
  });
}

void embedding_backward(const EmbeddingBackward& a, Stream) {
  // Threads take columns, not rows: no two write the same number and each column is summed in the order of the rows.
  by_type(a.type, [&]<typename T>(T) {
    by_type(a.gradient_type, [&]<typename G>(G) {
      parallel(a.width, 64, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t row = 0; row < a.rows; ++row) {
          const auto* dout = static_cast<const T*>(a.dout) + row * a.width;
          auto* dweight = static_cast<G*>(a.dweight) + a.tokens[row] * a.width;
#pragma omp simd
          for (auto i = begin; i < end; ++i) store(dweight[i], load(dweight[i]) + load(dout[i]));
        }
      });
    });
  });
}

}  // namespace lockstep::kernels::LOCKSTEP_ISA
