// SwiGLU as tensors see it: by itself, and together with the matmul beside it.
#include <ATen/ops/zeros.h>

#include "rank/kernels/face/face.h"

namespace lockstep::kernels {

namespace {

constexpr int kHopper = 90;

const void* data(const at::Tensor& t) { return t.defined() ? t.const_data_ptr() : nullptr; }

void expect_matrix(const at::Tensor& t, std::int64_t rows, std::int64_t columns) {
  expect(t.dim() == 2 && t.size(0) == rows && t.size(1) == columns && t.is_contiguous() && t.scalar_type() == at::kBFloat16,
         "swiglu with its matmul: dense matrices of bf16 whose sides match");
}

}  // namespace

void swiglu_forward(const at::Tensor& gate_up, const at::Tensor& out) {
  expect(gate_up.dim() == 2 && gate_up.size(1) == 2 * out.size(1) && gate_up.is_contiguous() && out.is_contiguous(),
         "swiglu: gate and up side by side");
  table_of(out).swiglu_forward(
      {.gate_up = gate_up.const_data_ptr(), .out = out.data_ptr(), .rows = out.size(0), .width = out.size(1), .type = type_of(out)},
      stream_of(out));
}

void swiglu_backward(const at::Tensor& gate_up, const at::Tensor& dout, const at::Tensor& dgate_up, const at::Tensor& out_again) {
  expect(gate_up.dim() == 2 && gate_up.size(1) == 2 * dout.size(1) && same(gate_up, dgate_up), "swiglu: gate and up side by side");
  if (out_again.defined()) expect(same(out_again, dout), "swiglu: output is shaped like its gradient");
  table_of(dout).swiglu_backward({.gate_up = gate_up.const_data_ptr(),
                                  .dout = dout.const_data_ptr(),
                                  .dgate_up = dgate_up.data_ptr(),
                                  .out = out_again.defined() ? out_again.data_ptr() : nullptr,
                                  .rows = dout.size(0),
                                  .width = dout.size(1),
                                  .type = type_of(dout)},
                                 stream_of(dout));
}

bool fuses_swiglu(const at::Tensor& gate_up, std::int64_t inner, std::int64_t rank) {
  const auto device = gate_up.device();
  return device.is_cuda() && gate_up.scalar_type() == at::kBFloat16 && (gate_up.size(1) / 2 | inner | rank) % 8 == 0 &&
         cuda_plugin().capability(device.index()) == kHopper;
}

void gate_up_swiglu(const at::Tensor& gate_up, const at::Tensor& out, const at::Tensor& x, const at::Tensor& weight,
                    const ThinProduct& thin) {
  const auto rows = x.size(0), inner = x.size(1), width = out.size(1), rank = thin.low.defined() ? thin.low.size(1) / 2 : 0;
  expect_matrix(x, rows, inner);
  expect_matrix(weight, 2 * width, inner);
  expect_matrix(gate_up, rows, 2 * width);
  expect_matrix(out, rows, width);
  if (thin.low.defined()) {
    expect_matrix(thin.low, rows, 2 * rank);
    expect_matrix(thin.weight, 2 * width, rank);
  }
  const at::Tensor next_tile = at::zeros({1}, out.options().dtype(at::kInt));
  table_of(out).gate_up_swiglu({.x = data(x),
                                .weight = data(weight),
                                .gate_up = gate_up.data_ptr(),
                                .out = out.data_ptr(),
                                .low = data(thin.low),
                                .b = data(thin.weight),
                                .rows = rows,
                                .width = width,
                                .inner = inner,
                                .rank = rank,
                                .next_tile = next_tile.data_ptr<int>()},
                               stream_of(out));
}

void down_backward_swiglu(const at::Tensor& gate_up, const at::Tensor& out_again, const at::Tensor& dout, const at::Tensor& weight,
                          const ThinProduct& thin) {
  const auto rows = dout.size(0), inner = dout.size(1), width = weight.size(1), rank = thin.low.defined() ? thin.low.size(1) : 0;
  expect_matrix(dout, rows, inner);
  expect_matrix(weight, inner, width);
  expect_matrix(gate_up, rows, 2 * width);
  if (out_again.defined()) expect_matrix(out_again, rows, width);
  if (thin.low.defined()) {
    expect_matrix(thin.low, rows, rank);
    expect_matrix(thin.weight, rank, width);
  }
  const at::Tensor next_tile = at::zeros({1}, dout.options().dtype(at::kInt));
  table_of(dout).down_backward_swiglu({.dout = data(dout),
                                       .weight = data(weight),
                                       .gate_up = gate_up.data_ptr(),
                                       .out = out_again.defined() ? out_again.data_ptr() : nullptr,
                                       .dlow = data(thin.low),
                                       .a = data(thin.weight),
                                       .rows = rows,
                                       .width = width,
                                       .inner = inner,
                                       .rank = rank,
                                       .next_tile = next_tile.data_ptr<int>()},
                                      stream_of(dout));
}

}  // namespace lockstep::kernels
