// What products in 8 bits need beside the numbers they multiply.
#pragma once

#include <algorithm>
#include <cstdint>

#include "layout/decoder.h"

namespace lockstep::layout {

// Bytes of the 8-bit copies that one product at a time uses, for `rows` tokens.
struct Fp8Copies {
  std::int64_t gradient, gradient_transposed, other;
  std::int64_t total() const { return gradient + gradient_transposed + other; }
};
inline Fp8Copies fp8_copies(const LargestMatrix& largest, std::int64_t rows) {
  return {rows * std::max(largest.out, largest.in), rows * largest.out, std::max(rows * largest.in, largest.elements)};
}
// At most.
inline std::int64_t fp8_bytes(const config::ModelConfig& model, std::int64_t rows) {
  return fp8_copies(largest_matrix(model), rows).total();
}

}  // namespace lockstep::layout
