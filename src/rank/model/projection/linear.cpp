// Matrix products that land where they belong: through our kernels where there are some for the type and device, else through ATen.
#include "rank/model/projection/linear.h"

#include <ATen/ops/addmm.h>
#include <ATen/ops/mm.h>

namespace lockstep::model {

using kernels::Into;

namespace {

// out = scale left right (+ out), by ATen.
void plain(at::Tensor out, const at::Tensor& left, const at::Tensor& right, Into into, double scale) {
  if (into == Into::add) {
    out.addmm_(left, right, 1, scale);
  } else if (scale == 1) {
    at::mm_out(out, left, right);
  } else {
    at::addmm_out(out, out, left, right, 0, scale);
  }
}

}  // namespace

void linear(const at::Tensor& out, const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias, Into into, double scale) {
  if (kernels::matmul(out, x, weight.t(), into, bias, scale)) return;
  auto target = out;
  if (bias.defined() && into == Into::write && scale == 1) {
    at::addmm_out(target, bias, x, weight.t());
    return;
  }
  plain(out, x, weight.t(), into, scale);
  if (bias.defined()) target.add_(bias);
}

void linear_backward_input(const at::Tensor& dx, const at::Tensor& dout, const at::Tensor& weight, Into into, double scale) {
  if (kernels::matmul(dx, dout, weight, into, {}, scale)) return;
  plain(dx, dout, weight, into, scale);
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
