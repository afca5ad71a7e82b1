// Methods that treat every number by itself: what to call for each stretch; the arithmetic is in kernels/update.h.
#include "rank/optim/elementwise.h"

#include "base/error.h"

namespace lockstep::optim {

namespace {

kernels::Rule rule_of(config::Optimizer method) {
  switch (method) {
    case config::Optimizer::adamw: return kernels::Rule::adamw;
    case config::Optimizer::lion: return kernels::Rule::lion;
    case config::Optimizer::sgd: return kernels::Rule::sgd;
    default: throw base::Bug("a method that is not elementwise");
  }
}

at::Tensor part(const at::Tensor& flat, std::int64_t begin, std::int64_t count) {
  return flat.defined() ? flat.narrow(0, begin, count) : at::Tensor();
}

}  // namespace

Elementwise::Elementwise(const model::Store& store, const Settings& settings)
    : Optimizer(store, settings), rule_(rule_of(settings.method)) {
  for (const model::HeldSlice& slice : slices()) {
    first_.push_back(at::zeros_like(slice.exact));
    second_.push_back(rule_ == kernels::Rule::adamw ? at::zeros_like(slice.exact) : at::Tensor());
  }
}

void Elementwise::update(std::size_t index, double learning_rate) {
  const model::HeldSlice& slice = slices()[index];
  for (const auto& [begin, count, rate, decay] : stretches(slice)) {
    kernels::update({.gradient = part(slice.gradients, begin, count),
                     .exact = part(slice.exact, begin, count),
                     .weights = part(slice.weights, begin, count),
                     .first = part(first_[index], begin, count),
                     .second = part(second_[index], begin, count)},
                    control(),
                    {.rule = rule_,
                     .rate = learning_rate * rate,
                     .beta1 = rule_ == kernels::Rule::sgd ? settings().momentum : settings().beta1,
                     .beta2 = settings().beta2,
                     .epsilon = settings().epsilon,
                     .decay = decay,
                     .key = key_of(slice),
                     .place = slice.begin + begin,
                     .zero_gradient = true});
  }
}

std::vector<model::NamedSlice> Elementwise::named_state() const {
  std::vector<model::NamedSlice> views;
  for (std::size_t i = 0; i < slices().size(); ++i) {
    add_views(views, rule_ == kernels::Rule::sgd ? "momentum_buffer" : "exp_avg", slices()[i], first_[i]);
    if (second_[i].defined()) add_views(views, "exp_avg_sq", slices()[i], second_[i]);
  }
  return views;
}

}  // namespace lockstep::optim
