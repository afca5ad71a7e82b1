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
  return fixed_root(sum_of_squares / double(count)).div(kClip).clamp_min(1.0);
}

}  // namespace

Adafactor::Adafactor(const model::Store& store, const Settings& settings) : ByMatrix(store, settings) {
  find_parameters(config::Optimizer::adafactor);
  for (const Parameter& p : parameters()) {
    const auto zeros = [&](std::int64_t count) {
      return at::zeros({p.owned ? count : 0}, slices()[p.slice].weights.options().dtype(at::kFloat));
    };
    const model::Piece& piece = *p.held.piece;
    if (piece.shape.size() >= 2)
      states_.push_back({.row = zeros(piece.shape[0]), .column = zeros(piece.elements() / piece.shape[0]), .whole = {}});
    else
      states_.push_back({.row = {}, .column = {}, .whole = zeros(piece.elements())});
  }
}

void Adafactor::begin_step() {
  const auto number = [&](std::int64_t at) { return control()[at]; };
  now_ = {.factor = number(offsetof(kernels::Control, factor) / sizeof(double)).to(at::kFloat),
          .skip = number(offsetof(kernels::Control, skip) / sizeof(double)) != 0,
          .fresh = number(offsetof(kernels::Control, updates) / sizeof(double)).clamp_min(1.0).pow(-0.8).to(at::kFloat)};
}

void Adafactor::direct(std::size_t parameter, const at::Tensor& gradient, const Emit& emit) {
  const State& state = states_[parameter];
  if (state.row.defined()) {
    direct_matrix(state, gradient, emit);
  } else {
    const at::Tensor g = gradient.to(at::kFloat) * now_.factor;
    advance(state.whole, g * g + kEpsilon, now_.fresh, now_.skip);
    const at::Tensor update = state.whole.rsqrt() * g;
    emit(0, update / clip_of(fixed_sum(update.square()), gradient.numel()));
  }
  gradient.zero_();
}

void Adafactor::direct_matrix(const State& state, const at::Tensor& flat, const Emit& emit) const {
  const std::int64_t rows = state.row.numel(), columns = state.column.numel();
  const at::Tensor gradient = flat.view({rows, columns});
  const std::int64_t height = std::clamp<std::int64_t>(kSlice / columns, 1, rows);
  const auto slices = [&](auto body) {
    for (std::int64_t at = 0; at < rows; at += height) {
      const std::int64_t count = std::min(height, rows - at);
      body(at, count, gradient.narrow(0, at, count).to(at::kFloat) * now_.factor);
    }
  };
  const at::Tensor row = at::zeros_like(state.row), column = at::zeros_like(state.column);
  slices([&](std::int64_t at, std::int64_t count, const at::Tensor& g) {
    const at::Tensor squares = g * g + kEpsilon;
    row.narrow(0, at, count).copy_(fixed_row_sums(squares).div_(double(columns)));
    column.add_(fixed_column_sums(squares));
  });
  advance(state.row, row, now_.fresh, now_.skip);
  advance(state.column, column / double(rows), now_.fresh, now_.skip);

  const at::Tensor by_row = (state.row / (fixed_sum(state.row) / double(rows))).rsqrt().unsqueeze(1);
  const at::Tensor by_column = state.column.rsqrt().unsqueeze(0);
  const at::Tensor squares = at::zeros({}, state.row.options());
  slices([&](std::int64_t at, std::int64_t count, const at::Tensor& g) {
    squares.add_(fixed_sum((g * by_row.narrow(0, at, count)).mul_(by_column).square_()));
  });
  const at::Tensor clip = clip_of(squares, rows * columns);
  slices([&](std::int64_t at, std::int64_t count, const at::Tensor& g) {
    const at::Tensor update = (g * by_row.narrow(0, at, count)).mul_(by_column).div_(clip);
    emit(at * columns, update.view({-1}));
  });
}

std::vector<model::NamedSlice> Adafactor::named_state() const {
  std::vector<model::NamedSlice> views;
  for (std::size_t i = 0; i < parameters().size(); ++i) {
    const Parameter& p = parameters()[i];
    const std::vector<std::int64_t>& shape = p.held.piece->shape;
    if (states_[i].row.defined()) {
      views.push_back(named_whole("exp_avg_sq_row", p, states_[i].row, {shape[0]}));
      views.push_back(named_whole("exp_avg_sq_col", p, states_[i].column, {p.held.piece->elements() / shape[0]}));
    } else {
      views.push_back(named_whole("exp_avg_sq", p, states_[i].whole, shape));
    }
  }
  return views;
}

}  // namespace lockstep::optim
