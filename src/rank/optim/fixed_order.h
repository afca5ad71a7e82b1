// Sums and products whose order follows from shapes alone, and roots that are rounded right. ATen's on a CPU are cut by the number of
// threads, and its roots are MKL's, which has other ones for each CPU: machines that differ would get different bits, and replicas would
// drift apart. On CUDA these are ATen's.
#pragma once

#include <ATen/core/Tensor.h>

namespace lockstep::optim {

// x: f32, dense. Sums are f64 in between, f32 at the end.
at::Tensor fixed_sum(const at::Tensor& x);          // scalar
at::Tensor fixed_row_sums(const at::Tensor& x);     // [rows, columns] -> [rows]
at::Tensor fixed_column_sums(const at::Tensor& x);  // [rows, columns] -> [columns]

at::Tensor fixed_root(const at::Tensor& x);  // of a scalar

// scale a b (+ more plus, where plus is defined), of matrices.
at::Tensor fixed_mm(const at::Tensor& a, const at::Tensor& b, double scale = 1, const at::Tensor& plus = {}, double more = 0);

}  // namespace lockstep::optim
