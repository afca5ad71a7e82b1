// Matrix products as tensors see them: how factors lie in memory, then the device's kernel where it has one.
#include <ATen/Context.h>

#include <optional>

#include "rank/kernels/face/face.h"

namespace lockstep::kernels {
namespace {

// How a matrix lies in memory: row by row, or as its transpose.
struct Rows {
  bool transposed;
  std::int64_t stride;
};

std::optional<Rows> rows_of(const at::Tensor& t) {
  if (t.stride(1) == 1 && t.stride(0) >= t.size(1)) return Rows{false, t.stride(0)};
  if (t.stride(0) == 1 && t.stride(1) >= t.size(0)) return Rows{true, t.stride(1)};
  return std::nullopt;
}

}  // namespace

bool matmul(const at::Tensor& out, const at::Tensor& left, const at::Tensor& right, Into into, const at::Tensor& bias, double scale) {
  const auto& kernel = table_of(out).matmul;
  const auto type = left.scalar_type();
  if (kernel == nullptr || (type != at::kBFloat16 && type != at::kHalf) || out.numel() == 0 || left.size(1) == 0) return false;
  expect(out.dim() == 2 && left.dim() == 2 && right.dim() == 2 && left.size(0) == out.size(0) && right.size(1) == out.size(1) &&
             left.size(1) == right.size(0),
         "matmul: [rows, columns] = [rows, inner] [inner, columns]");
  expect(right.scalar_type() == type && (out.scalar_type() == type || out.scalar_type() == at::kFloat), "matmul: factors of one type");
  if (bias.defined()) expect(bias.numel() == out.size(1) && bias.scalar_type() == out.scalar_type(), "matmul: one bias a column");
  const auto l = rows_of(left), r = rows_of(right), o = rows_of(out);
  if (!l || !r || !o || o->transposed) return false;
  return kernel({.left = left.const_data_ptr(),
                 .right = right.const_data_ptr(),
                 .bias = bias.defined() ? bias.const_data_ptr() : nullptr,
                 .out = out.data_ptr(),
                 .rows = out.size(0),
                 .columns = out.size(1),
                 .inner = left.size(1),
                 .left_stride = l->stride,
                 .right_stride = r->stride,
                 .out_stride = o->stride,
                 .left_transposed = l->transposed,
                 .right_transposed = r->transposed,
                 .accumulate = into == Into::add,
                 .scale = float(scale),
                 .search = !at::globalContext().deterministicAlgorithms(),
                 .type = type_of(left),
                 .out_type = type_of(out)},
                stream_of(out));
}

bool matmul(const at::Tensor& out, const at::Tensor& left, const at::Tensor& right, Into into) {
  return matmul(out, left, right, into, {}, 1);
}

}  // namespace lockstep::kernels
