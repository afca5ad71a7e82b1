// Products in 8 bits, in raw pointers and sizes: what only CUDA devices have, and so no part of every device's table. Free of LibTorch.
#pragma once

#include <cstdint>

#include "rank/kernels/table.h"

namespace lockstep::kernels {

// e4m3 has a bit more precision, up to 448: for weights and activations. e5m2 has more range, up to 57344: for gradients.
enum class Fp8 : int { e4m3, e5m2 };

// The scale of one tensor, on the device: numbers are stored times `multiply` and come back times `factor`.
struct Fp8Scale {
  std::uint32_t largest, done;  // of a pass that is under way; 0 before and after
  float multiply;
  std::uint32_t unused;
  float factor;  // where the library reads it: aligned to 16 bytes
  std::uint32_t padding[3];
};
inline constexpr std::int64_t kFp8ScaleBytes = sizeof(Fp8Scale);
static_assert(kFp8ScaleBytes == 32);

// The scale that puts the tensor's largest magnitude at the format's.
struct Fp8Measure {
  const void* in;      // bf16, aligned to 16 bytes
  std::int64_t count;  // a multiple of 8
  Fp8Scale* scale;
  Fp8 format;
};

// One read, up to two copies: as it lies and transposed. Rows and columns are multiples of 16.
struct Fp8Cast {
  const void* in;  // [rows, columns] bf16
  const Fp8Scale* scale;
  void* out;         // [rows, columns] or null
  void* transposed;  // [columns, rows] or null
  std::int64_t rows, columns;
  Fp8 format;
};

// out = left right^T (+ out where it accumulates) (+ bias). Both factors have the summed dimension innermost, dense.
struct Fp8Matmul {
  const void *left, *right;  // [rows, inner], [columns, inner]
  const Fp8Scale *left_scale, *right_scale;
  const void* bias;  // [columns] of out's type, or null
  void* out;         // [rows, columns]
  std::int64_t rows, columns, inner, out_stride;
  bool accumulate;
  bool fast;    // sums in the tensor cores' own precision; else they are carried over to f32 every few terms
  bool search;  // as in Matmul
  Fp8 left_format, right_format;
  Type out_type;
};

struct Fp8Table {
  void (*measure)(const Fp8Measure&, Stream);
  void (*cast)(const Fp8Cast&, Stream);
  bool (*matmul)(const Fp8Matmul&, Stream);  // false: no algorithm for these sizes
};

}  // namespace lockstep::kernels
