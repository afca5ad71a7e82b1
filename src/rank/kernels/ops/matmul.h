// Matrix products on CUDA; on a CPU ATen's serve, and what follows a product is an op of its own.
#pragma once

#include "rank/kernels/ops/op.h"

namespace lockstep::kernels {

struct ThinProduct;  // kernels.h

// out = scale left right (+ out where it accumulates) (+ bias), for 16-bit factors whose products are summed in f32. Matrices lie in
// memory row by row; a transposed factor lies there as its transpose.
struct Matmul {
  const void *left, *right;  // [rows, inner], [inner, columns]
  const void* bias;          // [columns] of out's type, or null
  void* out;                 // [rows, columns]
  std::int64_t rows, columns, inner;
  std::int64_t left_stride, right_stride, out_stride;  // elements from row to row in memory
  bool left_transposed, right_transposed, accumulate;
  float scale;
  bool search;  // time the library's algorithms at first use; else take its own choice, which is the same in every process
  Type type, out_type;
};
// out = scale left right (+ out) (+ bias): [rows, columns] = [rows, inner] [inner, columns]; either factor may be a transposed view.
// 16-bit factors on CUDA; out may be f32. False where there is no kernel for the device, type or sizes: then nothing was done.
bool matmul(const at::Tensor& out, const at::Tensor& left, const at::Tensor& right, Into into, const at::Tensor& bias, double scale);
bool matmul(const at::Tensor& out, const at::Tensor& left, const at::Tensor& right, Into into);

// SwiGLU together with the matmul beside it: whether there are such kernels for gate_up's device, type and width, for products over `inner`
// numbers, and for adapters of `rank` (0: none).
bool fuses_swiglu(const at::Tensor& gate_up, std::int64_t inner, std::int64_t rank);

// gate_up = x weight^T (+ low b^T, an adapter's share: gate's columns of low with gate's rows of b, up's with up's), out = silu(gate) * up.
// bf16; sides of matrices are multiples of 8.
struct GateUpSwiglu {
  const void *x, *weight;  // [rows, inner], [2 x width, inner]
  void *gate_up, *out;     // [rows, 2 x width], [rows, width]
  const void *low, *b;     // [rows, 2 x rank], [2 x width, rank], or null
  std::int64_t rows, width, inner, rank;
  int* next_tile;  // scratch, 0
};
// gate_up = x weight^T (+ thin.low thin.weight^T, in halves), out = silu(gate) * up.
void gate_up_swiglu(const at::Tensor& gate_up, const at::Tensor& out, const at::Tensor& x, const at::Tensor& weight,
                    const ThinProduct& thin);

// d = dout weight (+ dlow a) is the gradient of silu(gate) * up; gate_up becomes its own gradient, and out, where it is not null,
// receives silu(gate) * up again. bf16; sides of matrices are multiples of 8.
struct DownBackwardSwiglu {
  const void *dout, *weight;  // [rows, inner], [inner, width]
  void *gate_up, *out;        // [rows, 2 x width], [rows, width] or null
  const void *dlow, *a;       // [rows, rank], [rank, width], or null
  std::int64_t rows, width, inner, rank;
  int* next_tile;  // scratch, 0
};
// gate_up becomes its own gradient, where that of silu(gate) * up is dout weight (+ thin.low thin.weight). out_again: undefined, or
// recomputed.
void down_backward_swiglu(const at::Tensor& gate_up, const at::Tensor& out_again, const at::Tensor& dout, const at::Tensor& weight,
                          const ThinProduct& thin);

}  // namespace lockstep::kernels
