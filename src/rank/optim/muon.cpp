// Muon: momentum by our kernel, orthogonalisation by matrix products, then the kernel that takes the update off the weights.
#include "rank/optim/muon.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/linalg_vector_norm.h>

#include <algorithm>
#include <cmath>

#include "rank/kernels/kernels.h"
#include "rank/optim/fixed_order.h"

namespace lockstep::optim {

namespace {

at::Tensor norm_of(const at::Tensor& x) {
  return x.is_cpu() ? fixed_root(fixed_sum(x.square().contiguous())) : at::linalg_vector_norm(x, 2);
}

}  // namespace

at::Tensor orthogonalized(const at::Tensor& matrix) {
  constexpr double a = 3.4445, b = -4.7750, c = 2.0315;  // steepest at 0 among quintics that stay near 1
  const bool tall = matrix.size(0) > matrix.size(1);
  at::Tensor x = tall ? matrix.t() : matrix;
  x = x / norm_of(x).clamp_min(1e-7);
  for (int i = 0; i < 5; ++i) {
    const at::Tensor gram = fixed_mm(x, x.t());
    x = fixed_mm(fixed_mm(gram, gram, c, gram, b), x, 1, x, a);
  }
  return tall ? x.t() : x;
}

namespace {

// Of rows by columns: a step along an orthogonal matrix moves every row alike, so tall ones go further.
double stretch_of(const model::Piece& piece) { return std::sqrt(std::max(1.0, double(piece.shape[0]) / double(piece.shape[1]))); }

}  // namespace

Muon::Muon(const model::Store& store, const Settings& settings) : ByMatrix(store, settings) {
  find_parameters(config::Optimizer::muon);
  for (const Parameter& p : parameters()) {
    const auto zeros = [&](std::int64_t count) { return at::zeros({count}, slices()[p.slice].exact.options()); };
    if (p.whole)
      states_.push_back({zeros(p.owned ? p.held.piece->elements() : 0), {}});
    else
      states_.push_back({zeros(p.held.count), zeros(p.held.count)});
  }
}

void Muon::direct(std::size_t parameter, const at::Tensor& gradient, const Emit& emit) {
  const Parameter& p = parameters()[parameter];
  const auto working = gradient.is_cuda() ? at::kBFloat16 : at::kFloat;
  const at::Tensor momentum = at::empty(p.held.piece->shape, gradient.options().dtype(working));
  kernels::nesterov(gradient, states_[parameter].first, momentum, control(),
                    {.beta1 = settings().muon_momentum, .key = key_of(slices()[p.slice]), .place = p.held.in_unit});
  emit(0, orthogonalized(momentum).contiguous().view({-1}));
}

Muon::Taken Muon::taken(const Parameter& p) const {
  const double stretch = stretch_of(*p.held.piece);
  return {.rate = p.held.rate * stretch, .decay = p.held.decay / stretch};  // decay goes by the learning rate itself
}

void Muon::update_other(std::size_t parameter, double learning_rate) {
  const Parameter& p = parameters()[parameter];
  if (p.held.count == 0) return;
  const model::HeldSlice& slice = slices()[p.slice];
  const auto part = [&](const at::Tensor& flat) { return flat.narrow(0, p.held.begin, p.held.count); };
  kernels::update({.gradient = part(slice.gradients),
                   .exact = part(slice.exact),
                   .weights = part(slice.weights),
                   .first = states_[parameter].first,
                   .second = states_[parameter].second},
                  control(),
                  {.rule = kernels::Rule::adamw,
                   .rate = learning_rate * p.held.rate,
                   .beta1 = settings().beta1,
                   .beta2 = settings().beta2,
                   .epsilon = settings().epsilon,
                   .decay = p.held.decay,
                   .key = key_of(slice),
                   .place = slice.begin + p.held.begin});
}

std::vector<model::NamedSlice> Muon::named_state() const {
  std::vector<model::NamedSlice> views;
  for (std::size_t i = 0; i < parameters().size(); ++i) {
    const Parameter& p = parameters()[i];
    if (p.whole) {
      views.push_back(named_whole("momentum_buffer", p, states_[i].first, p.held.piece->shape));
      continue;
    }
    views.push_back(named("exp_avg", p.held, states_[i].first));
    views.push_back(named("exp_avg_sq", p.held, states_[i].second));
  }
  return views;
}

}  // namespace lockstep::optim
