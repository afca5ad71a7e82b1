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

Elementwise::Elementwise(std::vector<model::Unit*> all, const Settings& settings)
    : Optimizer(std::move(all), settings), rule_(rule_of(settings.method)) {
  for (const auto* unit : units()) {
    first_.push_back(at::zeros_like(unit->exact()));
    second_.push_back(rule_ == kernels::Rule::adamw ? at::zeros_like(unit->exact()) : at::Tensor());
  }
}

void Elementwise::step(double learning_rate) {
  for (std::size_t i = 0; i < units().size(); ++i) {
    const auto& unit = *units()[i];
    for (const auto& [begin, count, rate, decay] : stretches(unit)) {
      kernels::update({.gradient = part(unit.gradients(), begin, count),
                       .exact = part(unit.exact(), begin, count),
                       .weights = part(unit.weights(), begin, count),
                       .first = part(first_[i], begin, count),
                       .second = part(second_[i], begin, count)},
                      control(),
                      {.rule = rule_,
                       .rate = learning_rate * rate,
                       .beta1 = rule_ == kernels::Rule::sgd ? settings().momentum : settings().beta1,
                       .beta2 = settings().beta2,
                       .epsilon = settings().epsilon,
                       .decay = decay,
                       .key = key_of(unit),
                       .place = begin,
                       .zero_gradient = true});
    }
  }
}

std::vector<model::Unit::NamedView> Elementwise::named_state() const {
  std::vector<model::Unit::NamedView> views;
  const auto add = [&](const char* state, const model::Unit& unit, const at::Tensor& flat) {
    for (auto& [name, view] : unit.pieces_of(flat)) views.push_back({fmt::format("{}.{}", state, name), view});
  };
  for (std::size_t i = 0; i < units().size(); ++i) {
    add(rule_ == kernels::Rule::sgd ? "momentum_buffer" : "exp_avg", *units()[i], first_[i]);
    if (second_[i].defined()) add("exp_avg_sq", *units()[i], second_[i]);
  }
  return views;
}

}  // namespace lockstep::optim
