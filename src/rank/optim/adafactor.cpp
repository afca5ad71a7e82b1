// Adafactor in ATen: statistics of rows and columns, a clipped update, then the kernel that takes it off the weights.
#include "rank/optim/adafactor.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>

#include <algorithm>

#include "rank/kernels/kernels.h"
#include "rank/optim/fixed_order.h"

namespace lockstep::optim {

namespace {

constexpr double kEpsilon = 1e-30;                       // added to squares
constexpr double kClip = 1.0;                            // largest root mean square of an update
constexpr std::int64_t kSlice = std::int64_t(16) << 20;  // numbers at a time: 64 MiB in f32

// average += fresh * (value - average), unless the step is skipped.
void advance(const at::Tensor& average, const at::Tensor& value, const at::Tensor& fresh, const at::Tensor& skip) {
  average.copy_(at::where(skip, average, average * (1 - fresh) + value * fresh));
}

at::Tensor clip_of(const at::Tensor& sum_of_squares, std::int64_t count) {
  return (sum_of_squares / double(count)).sqrt().div(kClip).clamp_min(1.0);
}

}  // namespace

Adafactor::Adafactor(const model::Store& store, const Settings& settings) : Optimizer(store, settings) {
  for (std::size_t i = 0; i < slices().size(); ++i) {
    const model::HeldSlice& slice = slices()[i];
    const auto zeros = [&](std::int64_t count) { return at::zeros({count}, slice.weights.options().dtype(at::kFloat)); };
    for (const Place& place : places(slice)) {
      Parameter parameter{i, place, {}, {}, {}};
      if (place.piece->shape.size() >= 2) {
        parameter.row = zeros(place.piece->shape[0]);
        parameter.column = zeros(place.count / place.piece->shape[0]);
      } else {
        parameter.whole = zeros(place.count);
      }
      parameters_.push_back(std::move(parameter));
    }
  }
}

void Adafactor::step(double learning_rate) {
  const auto number = [&](std::int64_t at) { return control()[at]; };
  const Now now{.factor = number(offsetof(kernels::Control, factor) / sizeof(double)).to(at::kFloat),
                .skip = number(offsetof(kernels::Control, skip) / sizeof(double)) != 0,
                .fresh = number(offsetof(kernels::Control, updates) / sizeof(double)).clamp_min(1.0).pow(-0.8).to(at::kFloat)};
  for (const Parameter& parameter : parameters_) {
    if (parameter.row.defined())
      update_matrix(parameter, now, learning_rate);
    else
      update_vector(parameter, now, learning_rate);
  }
  for (const model::HeldSlice& slice : slices()) slice.gradients.zero_();
}

void Adafactor::update_matrix(const Parameter& p, const Now& now, double learning_rate) const {
  const std::int64_t rows = p.row.numel(), columns = p.column.numel();
  const at::Tensor gradient = slices()[p.slice].gradients.narrow(0, p.place.begin, p.place.count).view({rows, columns});
  const std::int64_t height = std::clamp<std::int64_t>(kSlice / columns, 1, rows);
  const auto slices = [&](auto body) {
    for (std::int64_t at = 0; at < rows; at += height) {
      const std::int64_t count = std::min(height, rows - at);
      body(at, count, gradient.narrow(0, at, count).to(at::kFloat) * now.factor);
    }
  };
  const at::Tensor row = at::zeros_like(p.row), column = at::zeros_like(p.column);
  slices([&](std::int64_t at, std::int64_t count, const at::Tensor& g) {
    const at::Tensor squares = g * g + kEpsilon;
    row.narrow(0, at, count).copy_(fixed_row_sums(squares).div_(double(columns)));
    column.add_(fixed_column_sums(squares));
  });
  advance(p.row, row, now.fresh, now.skip);
  advance(p.column, column / double(rows), now.fresh, now.skip);

  const at::Tensor by_row = (p.row / (fixed_sum(p.row) / double(rows))).rsqrt().unsqueeze(1), by_column = p.column.rsqrt().unsqueeze(0);
  const at::Tensor squares = at::zeros({}, p.row.options());
  slices([&](std::int64_t at, std::int64_t count, const at::Tensor& g) {
    squares.add_(fixed_sum((g * by_row.narrow(0, at, count)).mul_(by_column).square_()));
  });
  const at::Tensor clip = clip_of(squares, p.place.count);
  slices([&](std::int64_t at, std::int64_t count, const at::Tensor& g) {
    const at::Tensor update = (g * by_row.narrow(0, at, count)).mul_(by_column).div_(clip);
    apply(p, update.view({-1}), at * columns, learning_rate);
  });
}

void Adafactor::update_vector(const Parameter& p, const Now& now, double learning_rate) const {
  const at::Tensor g = slices()[p.slice].gradients.narrow(0, p.place.begin, p.place.count).to(at::kFloat) * now.factor;
  advance(p.whole, g * g + kEpsilon, now.fresh, now.skip);
  const at::Tensor update = p.whole.rsqrt() * g;
  apply(p, update / clip_of(fixed_sum(update.square()), p.place.count), 0, learning_rate);
}

void Adafactor::apply(const Parameter& p, const at::Tensor& update, std::int64_t begin, double learning_rate) const {
  const model::HeldSlice& slice = slices()[p.slice];
  const auto part = [&](const at::Tensor& flat) { return flat.narrow(0, p.place.begin + begin, update.numel()); };
  kernels::update({.gradient = update, .exact = part(slice.exact), .weights = part(slice.weights), .first = {}, .second = {}}, control(),
                  {.rule = kernels::Rule::apply,
                   .rate = learning_rate * p.place.rate,
                   .decay = p.place.decay,
                   .key = key_of(slice),
                   .place = slice.begin + p.place.begin + begin,
                   .zero_gradient = false});
}

std::vector<model::NamedSlice> Adafactor::named_state() const {
  std::vector<model::NamedSlice> views;
  for (const Parameter& p : parameters_) {
    const auto add = [&](const char* kind, const at::Tensor& t) {
      views.push_back({fmt::format("{}.{}", kind, p.place.piece->name), t, t.sizes().vec()});
    };
    if (p.row.defined()) {
      add("exp_avg_sq_row", p.row);
      add("exp_avg_sq_col", p.column);
    } else {
      add("exp_avg_sq", p.whole);
    }
  }
  return views;
}

}  // namespace lockstep::optim
