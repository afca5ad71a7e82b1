// The kernels of optimizers as tensors see them: checks lengths and types, then calls the device's.
#include <ATen/ops/empty.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/stack.h>

#include <numeric>
#include <span>

#include "base/ceil_div.h"
#include "rank/kernels/face/face.h"

namespace lockstep::kernels {

namespace {

Update update_of(const UpdateBuffers& buffers, const at::Tensor& control, const UpdateSettings& settings) {
  const auto& [gradient, exact, weights, first, second] = buffers;
  const auto fits = [&](const at::Tensor& t) { return !t.defined() || (t.numel() == exact.numel() && t.is_contiguous()); };
  expect(gradient.defined() && fits(gradient) && fits(exact) && fits(weights) && fits(first) && fits(second),
         "update: flat buffers of one length");
  expect(exact.scalar_type() == at::kFloat || exact.scalar_type() == at::kBFloat16, "update: weights that count are f32 or bf16");
  const bool copies = weights.defined() && weights.const_data_ptr() != exact.const_data_ptr();
  const auto pointer = [](const at::Tensor& t) { return t.defined() ? t.data_ptr() : nullptr; };
  return {.gradient = gradient.data_ptr(),
          .exact = exact.data_ptr(),
          .weights = copies ? weights.data_ptr() : nullptr,
          .first = pointer(first),
          .second = pointer(second),
          .count = exact.numel(),
          .place = settings.place,
          .rate = settings.rate,
          .beta1 = settings.beta1,
          .beta2 = settings.beta2,
          .epsilon = settings.epsilon,
          .decay = settings.decay,
          .key = settings.key,
          .control = reinterpret_cast<const Control*>(control.const_data_ptr<double>()),
          .gradient_type = type_of(gradient),
          .exact_type = type_of(exact),
          .weight_type = copies ? type_of(weights) : type_of(exact),
          .state_type = first.defined() ? type_of(first) : type_of(exact),
          .rule = settings.rule,
          .zero_gradient = settings.zero_gradient};
}

// Their sum. ATen's on a CPU is cut by the number of threads where there are many, and ranks must agree in every bit.
at::Tensor in_order(const at::Tensor& partials) {
  if (!partials.is_cpu()) return partials.sum();
  const auto* part = partials.const_data_ptr<double>();
  return at::scalar_tensor(std::accumulate(part, part + partials.numel(), 0.0), partials.options());
}

}  // namespace

void random_normal(const at::Tensor& out, std::uint64_t key, double std, std::int64_t first) {
  expect(out.scalar_type() == at::kFloat && out.is_contiguous(), "random numbers are written as dense f32");
  table_of(out).random_normal({.out = out.data_ptr<float>(), .key = key, .first = first, .count = out.numel(), .std = float(std)},
                              stream_of(out));
}

void sum_of_rows(const at::Tensor& out, const at::Tensor& rows) {
  expect(rows.dim() == 2 && rows.size(0) > 0 && rows.size(1) == out.numel(), "rows are as long as their sum");
  expect(rows.is_contiguous() && out.is_contiguous(), "rows and their sum are dense");
  if (out.numel() == 0) return;
  table_of(rows).sum_of_rows({.rows = rows.const_data_ptr(),
                              .out = out.mutable_data_ptr(),
                              .count_of_rows = rows.size(0),
                              .width = rows.size(1),
                              .type = type_of(rows),
                              .out_type = type_of(out)},
                             stream_of(rows));
}

at::Tensor sum_of_squares(std::span<const at::Tensor> flats) {
  expect(!flats.empty(), "a sum needs a buffer");
  std::int64_t blocks = 0;
  for (const at::Tensor& flat : flats) blocks += square_blocks(flat.numel());
  const auto partials = at::empty({blocks}, flats[0].options().dtype(at::kDouble));
  auto* next = partials.data_ptr<double>();
  for (const at::Tensor& flat : flats) {
    expect(flat.is_contiguous() && flat.numel() > 0, "flat buffers are dense");
    table_of(flat).sum_of_squares({.values = flat.const_data_ptr(), .count = flat.numel(), .type = type_of(flat), .partials = next},
                                  stream_of(flat));
    next += square_blocks(flat.numel());
  }
  std::vector<at::Tensor> sums;
  std::int64_t begin = 0;
  for (const at::Tensor& flat : flats) {
    const std::int64_t count = square_blocks(flat.numel());
    sums.push_back(in_order(partials.narrow(0, begin, count)));
    begin += count;
  }
  return at::stack(sums);
}

void finish_gradients(const at::Tensor& control, const at::Tensor& scale, const at::Tensor& sum_of_squares, const at::Tensor& token_count,
                      const at::Tensor& loss_sum, const GradientRules& rules) {
  expect(control.numel() == kControlNumbers && control.scalar_type() == at::kDouble, "control is f64 numbers in Control's order");
  const at::Tensor all_squares = in_order(sum_of_squares.view({-1}));
  table_of(control).finish_gradients({.control = reinterpret_cast<Control*>(control.data_ptr<double>()),
                                      .scale = scale.data_ptr<float>(),
                                      .sum_of_squares = all_squares.const_data_ptr<double>(),
                                      .token_count = token_count.const_data_ptr<double>(),
                                      .loss_sum = loss_sum.const_data_ptr<double>(),
                                      .nominal_tokens = rules.nominal_tokens,
                                      .max_norm = rules.max_norm,
                                      .dynamic_scale = rules.dynamic_scale,
                                      .scale_window = rules.scale_window},
                                     stream_of(control));
}

void update(const UpdateBuffers& buffers, const at::Tensor& control, const UpdateSettings& settings) {
  table_of(buffers.exact).update(update_of(buffers, control, settings), stream_of(buffers.exact));
}

void adamw_8bit(const UpdateBuffers& buffers, const QuantState& first, const QuantState& second, const at::Tensor& control,
                const UpdateSettings& settings) {
  const auto count = buffers.exact.numel();
  for (const QuantState* state : {&first, &second})
    expect(state->codes.numel() == count && state->codes.scalar_type() == at::kByte &&
               state->scale.numel() == base::ceil_div(count, kQuantBlock) && state->map.numel() == 256,
           "adamw_8bit: a code a number, a scale a block, 256 values");
  table_of(buffers.exact)
      .adamw_8bit({update_of(buffers, control, settings), first.codes.data_ptr<std::uint8_t>(), second.codes.data_ptr<std::uint8_t>(),
                   first.scale.data_ptr<float>(), second.scale.data_ptr<float>(), first.map.const_data_ptr<float>(),
                   second.map.const_data_ptr<float>()},
                  stream_of(buffers.exact));
}

void nesterov(const at::Tensor& gradient, const at::Tensor& momentum, const at::Tensor& out, const at::Tensor& control,
              const UpdateSettings& settings) {
  const auto count = gradient.numel();
  expect(momentum.numel() == count && out.numel() == count && gradient.is_contiguous() && momentum.is_contiguous() && out.is_contiguous(),
         "nesterov: buffers of one length");
  table_of(gradient).nesterov({.gradient = gradient.data_ptr(),
                               .momentum = momentum.data_ptr(),
                               .out = out.data_ptr(),
                               .count = count,
                               .place = settings.place,
                               .beta = settings.beta1,
                               .key = settings.key,
                               .control = reinterpret_cast<const Control*>(control.const_data_ptr<double>()),
                               .gradient_type = type_of(gradient),
                               .momentum_type = type_of(momentum),
                               .out_type = type_of(out),
                               .zero_gradient = settings.zero_gradient},
                              stream_of(gradient));
}

}  // namespace lockstep::kernels
