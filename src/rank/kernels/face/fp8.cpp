// Checks shapes and types, then calls the plug-in's 8-bit kernels.
#include "rank/kernels/fp8.h"

#include <ATen/Context.h>
#include <ATen/ops/zeros.h>

#include "rank/kernels/face/face.h"

namespace lockstep::kernels {

namespace {

constexpr int kFirstCapability = 89;
constexpr std::int64_t kMultiple = 16;  // of rows and columns, for the library and for accesses of 16 bytes

Fp8 format_of(const at::Tensor& t) {
  if (t.scalar_type() == at::kFloat8_e4m3fn) return Fp8::e4m3;
  base::check(t.scalar_type() == at::kFloat8_e5m2, "8-bit numbers are e4m3 or e5m2");
  return Fp8::e5m2;
}

Fp8Scale* scale_of(const at::Tensor& scale) {
  base::check(scale.numel() == kFp8ScaleBytes && scale.is_contiguous() && scale.scalar_type() == at::kByte, "a scale is one row of scales");
  return static_cast<Fp8Scale*>(scale.data_ptr());
}

void check_source(const at::Tensor& x) {
  base::check(x.dim() == 2 && x.is_contiguous() && x.scalar_type() == at::kBFloat16 && x.size(0) % kMultiple == 0 &&
                  x.size(1) % kMultiple == 0 && reinterpret_cast<std::uintptr_t>(x.const_data_ptr()) % 16 == 0,
              "8-bit copies are made of dense bf16 matrices whose sides are multiples of 16");
}

}  // namespace

bool has_fp8(const at::Device& device) { return device.is_cuda() && cuda_plugin().capability(device.index()) >= kFirstCapability; }

const Fp8Table& fp8_table(const at::Device& device) {
  base::check(has_fp8(device), "8-bit kernels are those of a device that has some");
  return *cuda_plugin().fp8;
}

at::ScalarType scalar_type(Fp8 format) { return format == Fp8::e4m3 ? at::kFloat8_e4m3fn : at::kFloat8_e5m2; }

at::Tensor make_fp8_scales(std::int64_t count, const at::Device& device) {
  return at::zeros({count, kFp8ScaleBytes}, at::TensorOptions().dtype(at::kByte).device(device));
}

void fp8_measure(const Fp8Table& table, const at::Tensor& x, Fp8 format, const at::Tensor& scale) {
  check_source(x);
  table.measure({.in = x.const_data_ptr(), .count = x.numel(), .scale = scale_of(scale), .format = format}, stream_of(x));
}

void fp8_cast(const Fp8Table& table, const at::Tensor& x, const at::Tensor& scale, const at::Tensor& out, const at::Tensor& transposed) {
  check_source(x);
  base::check(out.defined() || transposed.defined(), "a cast makes at least one copy");
  const auto fits = [](const at::Tensor& t, std::int64_t rows, std::int64_t columns) {
    return !t.defined() || (t.dim() == 2 && t.size(0) == rows && t.size(1) == columns && t.is_contiguous());
  };
  base::check(fits(out, x.size(0), x.size(1)) && fits(transposed, x.size(1), x.size(0)), "8-bit copies are shaped as x or its transpose");
  if (out.defined() && transposed.defined()) base::check(out.scalar_type() == transposed.scalar_type(), "both copies are of one format");
  table.cast({.in = x.const_data_ptr(),
              .scale = scale_of(scale),
              .out = out.defined() ? out.data_ptr() : nullptr,
              .transposed = transposed.defined() ? transposed.data_ptr() : nullptr,
              .rows = x.size(0),
              .columns = x.size(1),
              .format = format_of(out.defined() ? out : transposed)},
             stream_of(x));
}

bool fp8_matmul(const Fp8Table& table, const at::Tensor& out, const Fp8Matrix& left, const Fp8Matrix& right, Into into, Sums sums,
                const at::Tensor& bias) {
  const at::Tensor &l = left.values, &r = right.values;
  base::check(out.dim() == 2 && l.is_contiguous() && r.is_contiguous() && l.size(0) == out.size(0) && r.size(0) == out.size(1) &&
                  l.size(1) == r.size(1) && out.stride(1) == 1,
              "matmul: [rows, columns] = [rows, inner] [columns, inner]^T");
  base::check(out.scalar_type() == at::kBFloat16 || out.scalar_type() == at::kFloat, "matmul: products of 8-bit numbers are bf16 or f32");
  if (bias.defined()) base::check(bias.numel() == out.size(1) && bias.scalar_type() == out.scalar_type(), "matmul: one bias a column");
  return table.matmul({.left = l.const_data_ptr(),
                       .right = r.const_data_ptr(),
                       .left_scale = scale_of(left.scale),
                       .right_scale = scale_of(right.scale),
                       .bias = bias.defined() ? bias.const_data_ptr() : nullptr,
                       .out = out.data_ptr(),
                       .rows = out.size(0),
                       .columns = out.size(1),
                       .inner = l.size(1),
                       .out_stride = out.stride(0),
                       .accumulate = into == Into::add,
                       .fast = sums == Sums::fast,
                       .search = !at::globalContext().deterministicAlgorithms(),
                       .left_format = format_of(l),
                       .right_format = format_of(r),
                       .out_type = out.scalar_type() == at::kFloat ? Type::f32 : Type::bf16},
                      stream_of(out));
}

}  // namespace lockstep::kernels
