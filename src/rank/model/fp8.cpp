// Measures, casts, multiplies. The library wants the summed dimension innermost in both factors, hence the transposed copies.
#include "rank/model/fp8.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <utility>

#include "rank/model/dims.h"

namespace lockstep::model {

using kernels::Fp8;
using kernels::Fp8Matrix;
using kernels::Into;
using kernels::Sums;

namespace {

constexpr std::int64_t kMultiple = 16;

// The same for the three products of a weight, so that pairs are either both in 8 bits or both not.
bool suits(const at::Tensor& rows, const at::Tensor& weight) {
  return rows.scalar_type() == at::kBFloat16 && rows.size(0) > 0 && rows.size(0) % kMultiple == 0 && weight.size(0) % kMultiple == 0 &&
         weight.size(1) % kMultiple == 0;
}

at::Tensor place(at::Tensor& memory, std::int64_t rows, std::int64_t columns, Fp8 format) {
  return memory.narrow(0, 0, rows * columns).view(kernels::scalar_type(format)).view({rows, columns});
}

void make_room(at::Tensor& memory, std::int64_t bytes, const at::Tensor& like) {
  if (memory.defined() && memory.numel() >= bytes) return;
  memory = {};  // first what is too small, so that both need not fit
  memory = at::empty({bytes}, like.options().dtype(at::kByte));
}

}  // namespace

Fp8Products::Fp8Products(const at::Device& device) {
  const at::Tensor scales = kernels::make_fp8_scales(2, device);
  gradient_scale_ = scales[0];
  other_scale_ = scales[1];
}

Fp8Matrix Fp8Products::cast(const at::Tensor& x, at::Tensor& memory, const at::Tensor& scale) const {
  make_room(memory, x.numel(), x);
  const at::Tensor out = place(memory, x.size(0), x.size(1), Fp8::e4m3);
  kernels::fp8_measure(x, Fp8::e4m3, scale);
  kernels::fp8_cast(x, scale, out, {});
  return {out, scale};
}

Fp8Matrix Fp8Products::cast_transposed(const at::Tensor& x, at::Tensor& memory, const at::Tensor& scale) const {
  make_room(memory, x.numel(), x);
  const at::Tensor out = place(memory, x.size(1), x.size(0), Fp8::e4m3);
  kernels::fp8_measure(x, Fp8::e4m3, scale);
  kernels::fp8_cast(x, scale, {}, out);
  return {out, scale};
}

void Fp8Products::cast_gradient(const at::Tensor& dout, bool paired) {
  if (std::exchange(waiting_, nullptr) == dout.const_data_ptr()) return;
  const auto rows = dout.size(0), columns = dout.size(1);
  make_room(gradient_memory_, dout.numel(), dout);
  gradient_ = {place(gradient_memory_, rows, columns, Fp8::e5m2), gradient_scale_};
  gradient_t_ = {};
  if (paired) {
    make_room(gradient_t_memory_, dout.numel(), dout);
    gradient_t_ = {place(gradient_t_memory_, columns, rows, Fp8::e5m2), gradient_scale_};
    waiting_ = dout.const_data_ptr();
  }
  kernels::fp8_measure(dout, Fp8::e5m2, gradient_scale_);
  kernels::fp8_cast(dout, gradient_scale_, gradient_.values, gradient_t_.values);
}

bool Fp8Products::forward(const at::Tensor& out, const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
  if (!suits(x, weight)) return false;
  waiting_ = nullptr;  // its copies are about to be overwritten
  const Fp8Matrix input = cast(x.contiguous(), gradient_memory_, gradient_scale_), w = cast(weight, other_memory_, other_scale_);
  return kernels::fp8_matmul(out, input, w, Into::write, Sums::fast, bias);
}

bool Fp8Products::backward_input(const at::Tensor& dx, const at::Tensor& dout, const at::Tensor& weight, bool paired) {
  if (!suits(dout, weight)) return false;
  cast_gradient(dout, paired);
  return kernels::fp8_matmul(dx, gradient_, cast_transposed(weight, other_memory_, other_scale_), Into::write, Sums::fast);
}

bool Fp8Products::backward_weight(const at::Tensor& dweight, const at::Tensor& dout, const at::Tensor& x) {
  if (!suits(dout, dweight)) return false;
  cast_gradient(dout, /*paired=*/true);
  return kernels::fp8_matmul(dweight, gradient_t_, cast_transposed(x.contiguous(), other_memory_, other_scale_), Into::add, Sums::exact);
}

std::int64_t fp8_bytes(const config::ModelConfig& model, std::int64_t rows) {
  const Dims dims(model);
  const std::int64_t widest_out = std::max(2 * dims.intermediate, dims.qkv_width());
  const std::int64_t widest_in = std::max({dims.intermediate, dims.q_width(), dims.hidden});
  const std::int64_t largest_weight =
      std::max({2 * dims.intermediate * dims.hidden, dims.qkv_width() * dims.hidden, dims.q_width() * dims.hidden});
  return rows * (2 * widest_out) + std::max(rows * widest_in, largest_weight);
}

}  // namespace lockstep::model
