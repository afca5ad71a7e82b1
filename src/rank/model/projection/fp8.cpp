// Measures, casts, multiplies. The library wants the summed dimension innermost in both factors, hence the transposed copies.
#include "rank/model/projection/fp8.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <utility>

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

void make_room(at::Tensor& memory, std::int64_t bytes, const at::Device& device) {
  if (memory.defined() && memory.numel() >= bytes) return;
  memory.reset();  // first what is too small goes, so that both need not fit
  memory = at::empty({bytes}, at::TensorOptions().dtype(at::kByte).device(device));
}

// A copy in memory, as it lies or transposed.
Fp8Matrix cast(const kernels::Fp8Table& table, const at::Tensor& x, at::Tensor& memory, const at::Tensor& scale) {
  make_room(memory, x.numel(), x.device());
  const at::Tensor out = place(memory, x.size(0), x.size(1), Fp8::e4m3);
  kernels::fp8_cast(table, x, scale, out, {});
  return {out, scale};
}

Fp8Matrix cast_transposed(const kernels::Fp8Table& table, const at::Tensor& x, at::Tensor& memory, const at::Tensor& scale) {
  make_room(memory, x.numel(), x.device());
  const at::Tensor out = place(memory, x.size(1), x.size(0), Fp8::e4m3);
  kernels::fp8_cast(table, x, scale, {}, out);
  return {out, scale};
}

}  // namespace

Fp8Products::Fp8Products(const at::Device& device, const kernels::Fp8Table& table)
    : table_(&table), gradient_scale_(kernels::make_fp8_scales(1, device)[0]) {}

void Fp8Products::reserve(const layout::LargestMatrix& largest, std::int64_t rows) {
  const layout::Fp8Copies room = layout::fp8_copies(largest, rows);
  const at::Device device = gradient_scale_.device();
  forget_gradient();
  make_room(gradient_memory_, room.gradient, device);
  make_room(other_memory_, room.other, device);
}

// Its copies are about to be overwritten.
void Fp8Products::forget_gradient() {
  gradient_ = gradient_t_ = {};
  cast_ = false;
}

void Fp8Products::cast_gradient(const at::Tensor& dout, bool paired) {
  if (cast_) return;
  forget_gradient();
  cast_ = true;
  const auto rows = dout.size(0), columns = dout.size(1);
  make_room(gradient_memory_, dout.numel(), dout.device());
  gradient_ = {place(gradient_memory_, rows, columns, Fp8::e5m2), gradient_scale_};
  if (paired) {
    make_room(gradient_t_memory_, dout.numel(), dout.device());
    gradient_t_ = {place(gradient_t_memory_, columns, rows, Fp8::e5m2), gradient_scale_};
  }
  kernels::fp8_measure(*table_, dout, Fp8::e5m2, gradient_scale_);
  kernels::fp8_cast(*table_, dout, gradient_scale_, gradient_.values, gradient_t_.values);
}

bool Fp8Products::forward(const at::Tensor& out, const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias, Into into,
                          Fp8Scales& scales) {
  if (!suits(x, weight)) return false;
  if (!scales.input.defined()) {
    const at::Tensor made = kernels::make_fp8_scales(2, x.device());
    scales = {made[0], made[1]};
  }
  forget_gradient();
  const at::Tensor dense = x.contiguous();
  kernels::fp8_measure(*table_, dense, Fp8::e4m3, scales.input);
  const Fp8Matrix input = cast(*table_, dense, gradient_memory_, scales.input);
  kernels::fp8_measure(*table_, weight, Fp8::e4m3, scales.weight);
  return kernels::fp8_matmul(*table_, out, input, cast(*table_, weight, other_memory_, scales.weight), into, Sums::fast, bias);
}

bool Fp8Products::backward_input(const at::Tensor& dx, const at::Tensor& dout, const at::Tensor& weight, Into into, const Fp8Scales& scales,
                                 bool paired) {
  if (!suits(dout, weight)) return false;
  cast_gradient(dout, paired);
  return kernels::fp8_matmul(*table_, dx, gradient_, cast_transposed(*table_, weight, other_memory_, scales.weight), into, Sums::fast);
}

bool Fp8Products::backward_weight(const at::Tensor& dweight, const at::Tensor& dout, const at::Tensor& x, const Fp8Scales& scales) {
  if (!suits(dout, dweight)) return false;
  cast_gradient(dout, /*paired=*/true);
  return kernels::fp8_matmul(*table_, dweight, gradient_t_, cast_transposed(*table_, x.contiguous(), other_memory_, scales.input),
                             Into::add, Sums::exact);
}

}  // namespace lockstep::model
