// Every matrix product of the model, in one place. Matrices are [rows, columns], weights [out, in] as checkpoints store them.
#pragma once

#include <ATen/core/Tensor.h>

#include "rank/kernels/kernels.h"

namespace lockstep::model {

// out = scale x weight^T (+ out, where it is added to) (+ bias, where defined).
void linear(const at::Tensor& out, const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias = {},
            kernels::Into into = kernels::Into::write, double scale = 1);
// dx = scale dout weight (+ dx).
void linear_backward_input(const at::Tensor& dx, const at::Tensor& dout, const at::Tensor& weight,
                           kernels::Into into = kernels::Into::write, double scale = 1);
// dweight += dout^T x. dweight may be f32 where dout and x are 16-bit: products are summed in f32 either way.
void linear_backward_weight(const at::Tensor& dweight, const at::Tensor& dout, const at::Tensor& x);

}  // namespace lockstep::model
