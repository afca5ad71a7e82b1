// Matrix products that land where they belong: through our kernels where there are some for the type and device, else through ATen.
#include "rank/model/linear.h"

#include <ATen/ops/addmm.h>
#include <ATen/ops/mm.h>

#include "rank/kernels/kernels.h"

namespace lockstep::model {

using kernels::Into;

void linear(const at::Tensor& out, const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
  if (kernels::matmul(out, x, weight.t(), Into::write, bias)) return;
  auto target = out;
  if (bias.defined()) {
    at::addmm_out(target, bias, x, weight.t());
  } else {
    at::mm_out(target, x, weight.t());
  }
}

void linear_backward_input(const at::Tensor& dx, const at::Tensor& dout, const at::Tensor& weight) {
  if (kernels::matmul(dx, dout, weight, Into::write)) return;
  auto target = dx;
  at::mm_out(target, dout, weight);
}

void linear_backward_weight(const at::Tensor& dweight, const at::Tensor& dout, const at::Tensor& x) {
  if (kernels::matmul(dweight, dout.t(), x, Into::add)) return;
  auto target = dweight;
  if (dweight.scalar_type() == x.scalar_type()) {
    target.addmm_(dout.t(), x);
  } else if (dweight.is_cuda()) {
    at::addmm_out(target, target, dout.t(), x, dweight.scalar_type());  // 16-bit in, f32 out
  } else {
    at::addmm_out(target, target, dout.to(at::kFloat).t(), x.to(at::kFloat));  // no CPU matmul of mixed types: exact, if slower
  }
}

}  // namespace lockstep::model
