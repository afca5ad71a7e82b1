// Measures, casts and multiplies with ATen.
#include "support/reference/simulated_fp8.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>

#include <cfloat>
#include <cmath>

#include "support/reference/test_device.h"

namespace lockstep::test {

namespace {

using kernels::Fp8;

at::ScalarType type_of(Fp8 format) { return format == Fp8::e4m3 ? at::kFloat8_e4m3fn : at::kFloat8_e5m2; }
float largest_of(Fp8 format) { return format == Fp8::e4m3 ? 448.0f : 57344.0f; }

at::Tensor at_place(const void* data, at::IntArrayRef sizes, at::ScalarType type) {
  return at::from_blob(const_cast<void*>(data), sizes, at::TensorOptions().dtype(type).device(device()));
}

// The two numbers of a scale that outlive a pass: {multiply, factor} are at words 2 and 4.
at::Tensor words(const kernels::Fp8Scale* scale) { return at_place(scale, {8}, at::kFloat); }

void measure(const kernels::Fp8Measure& a, kernels::Stream) {
  const float whole = at_place(a.in, {a.count}, at::kBFloat16).to(at::kFloat).abs().max().item<float>();
  float multiply = largest_of(a.format) / whole;
  if (multiply > FLT_MAX) multiply = whole > 0.0f ? FLT_MAX : 1.0f;
  words(a.scale)[2].fill_(multiply);
  words(a.scale)[4].fill_(1.0f / multiply);
}

void cast(const kernels::Fp8Cast& a, kernels::Stream) {
  const at::Tensor x = at_place(a.in, {a.rows, a.columns}, at::kBFloat16).to(at::kFloat) * words(a.scale)[2];
  const float most = largest_of(a.format);
  const at::Tensor rounded = x.clamp(-most, most).to(type_of(a.format));  // clamp leaves what is no number as it is
  if (a.out) at_place(a.out, {a.rows, a.columns}, type_of(a.format)).copy_(rounded);
  if (a.transposed) at_place(a.transposed, {a.columns, a.rows}, type_of(a.format)).copy_(rounded.t());
}

bool matmul(const kernels::Fp8Matmul& a, kernels::Stream) {
  const auto factor = [&](const void* data, std::int64_t rows, Fp8 format, const kernels::Fp8Scale* scale) {
    return at_place(data, {rows, a.inner}, type_of(format)).to(at::kFloat) * words(scale)[4];
  };
  at::Tensor product =
      at::matmul(factor(a.left, a.rows, a.left_format, a.left_scale), factor(a.right, a.columns, a.right_format, a.right_scale).t());
  const at::ScalarType type = a.out_type == kernels::Type::f32 ? at::kFloat : at::kBFloat16;
  const at::Tensor out = at_place(a.out, {a.rows, a.out_stride}, type).narrow(1, 0, a.columns);
  if (a.bias) product.add_(at_place(a.bias, {a.columns}, type));
  if (a.accumulate) product.add_(out);
  out.copy_(product);
  return true;
}

}  // namespace

const kernels::Fp8Table& simulated_fp8() {
  static const kernels::Fp8Table table{.measure = measure, .cast = cast, .matmul = matmul};
  return table;
}

}  // namespace lockstep::test
