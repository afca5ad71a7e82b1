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

at::Tensor norm_of(const at::Tensor& x) { return x.is_cpu() ? fixed_sum(x.square().contiguous()).sqrt() : at::linalg_vector_norm(x, 2); }

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

Muon::Muon(const model::Store& store, const Settings& settings) : Optimizer(store, settings) {
  for (std::size_t i = 0; i < slices().size(); ++i) {
    const model::HeldSlice& slice = slices()[i];
    const auto zeros = [&](std::int64_t count) { return at::zeros({count}, slice.exact.options()); };
    for (const Place& place : places(slice)) {
      const bool outer = place.leaf->role == model::Role::token_embedding || place.leaf->role == model::Role::output_head;
      const bool orthogonal = !outer && place.piece->shape.size() == 2;
      parameters_.push_back({i, place, orthogonal, zeros(place.count), orthogonal ? at::Tensor() : zeros(place.count)});
    }
  }
}

void Muon::step(double learning_rate) {
  for (const Parameter& p : parameters_)
    (this->*(p.orthogonal ? &Muon::update_matrix : &Muon::update_other))(p, learning_rate * p.place.rate);
}

void Muon::update_matrix(const Parameter& p, double learning_rate) const {
  const model::HeldSlice& slice = slices()[p.slice];
  const auto part = [&](const at::Tensor& flat) { return flat.narrow(0, p.place.begin, p.place.count); };
  const at::Tensor gradient = part(slice.gradients);
  const auto working = gradient.is_cuda() ? at::kBFloat16 : at::kFloat;
  const at::Tensor momentum = at::empty(p.place.piece->shape, gradient.options().dtype(working));
  kernels::nesterov(gradient, p.first, momentum, control(),
                    {.beta1 = settings().muon_momentum, .key = key_of(slice), .place = slice.begin + p.place.begin});
  const double stretch = std::sqrt(std::max(1.0, double(momentum.size(0)) / double(momentum.size(1))));
  kernels::update({.gradient = orthogonalized(momentum).contiguous().view({-1}),
                   .exact = part(slice.exact),
                   .weights = part(slice.weights),
                   .first = {},
                   .second = {}},
                  control(),
                  {.rule = kernels::Rule::apply,
                   .rate = learning_rate * stretch,
                   .decay = p.place.decay / stretch,  // decay goes by the learning rate itself
                   .key = key_of(slice),
                   .place = slice.begin + p.place.begin,
                   .zero_gradient = false});
}

void Muon::update_other(const Parameter& p, double learning_rate) const {
  const model::HeldSlice& slice = slices()[p.slice];
  const auto part = [&](const at::Tensor& flat) { return flat.narrow(0, p.place.begin, p.place.count); };
  kernels::update(
      {.gradient = part(slice.gradients), .exact = part(slice.exact), .weights = part(slice.weights), .first = p.first, .second = p.second},
      control(),
      {.rule = kernels::Rule::adamw,
       .rate = learning_rate,
       .beta1 = settings().beta1,
       .beta2 = settings().beta2,
       .epsilon = settings().epsilon,
       .decay = p.place.decay,
       .key = key_of(slice),
       .place = slice.begin + p.place.begin});
}

std::vector<model::NamedSlice> Muon::named_state() const {
  std::vector<model::NamedSlice> views;
  for (const Parameter& p : parameters_) {
    const auto add = [&](const char* kind, const at::Tensor& t) { views.push_back(named(kind, p.place, t)); };
    add(p.orthogonal ? "momentum_buffer" : "exp_avg", p.first);
    if (!p.orthogonal) add("exp_avg_sq", p.second);
  }
  return views;
}

}  // namespace lockstep::optim
