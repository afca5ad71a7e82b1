// 8-bit copies of matrices and their products, as tensors see them. On CUDA devices that have them, on the current stream.
#pragma once

#include <ATen/core/Tensor.h>

#include "rank/kernels/fp8_table.h"
#include "rank/kernels/kernels.h"

namespace lockstep::kernels {

// Compute capability 8.9 and later.
bool has_fp8(const at::Device& device);
// The kernels of such a device. The functions below take any table, so that tests can put plain arithmetic in their place.
const Fp8Table& fp8_table(const at::Device& device);

at::ScalarType scalar_type(Fp8 format);
// [count, kFp8ScaleBytes] u8: a row is one tensor's scale. The rows hold nothing yet.
at::Tensor make_fp8_scales(std::int64_t count, const at::Device& device);

// The scale of x for a format, from its largest magnitude.
void fp8_measure(const Fp8Table& table, const at::Tensor& x, Fp8 format, const at::Tensor& scale);
// Copies of x, [rows, columns] bf16, in `scale`: out [rows, columns], transposed [columns, rows]. One of them may be undefined.
void fp8_cast(const Fp8Table& table, const at::Tensor& x, const at::Tensor& scale, const at::Tensor& out, const at::Tensor& transposed);

struct Fp8Matrix {
  at::Tensor values;  // dense
  at::Tensor scale;
};
enum class Sums { fast, exact };  // exact: carried over to f32 every few terms
// out = left right^T (+ out) (+ bias): [rows, columns] = [rows, inner] [columns, inner]^T. False where there is no algorithm: then nothing
// was done.
bool fp8_matmul(const Fp8Table& table, const at::Tensor& out, const Fp8Matrix& left, const Fp8Matrix& right, Into into, Sums sums,
                const at::Tensor& bias = {});

}  // namespace lockstep::kernels
