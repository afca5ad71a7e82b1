// AdamW: the order of a step; the arithmetic is in kernels/.
#include <cstring>

#include "base/error.h"
#include "rank/kernels/kernels.h"
#include "rank/optim/optim.h"

namespace lockstep::optim {

namespace {

at::Tensor control_tensor(const kernels::Control& control, const at::Device& device) {
  auto tensor = at::empty({kernels::kControlNumbers}, at::kDouble);
  static_assert(sizeof(control) == kernels::kControlNumbers * sizeof(double));
  std::memcpy(tensor.data_ptr(), &control, sizeof(control));
  return tensor.to(device);
}

kernels::Control control_of(const at::Tensor& tensor) {
  const auto host = tensor.to(at::kCPU);
  kernels::Control control;
  std::memcpy(&control, host.const_data_ptr(), sizeof(control));
  return control;
}

}  // namespace

AdamW::Settings AdamW::settings_for(const config::TrainerConfig& trainer, config::DType dtype, double nominal_tokens) {
  const bool f16 = dtype == config::DType::f16;
  return {.beta1 = trainer.beta1,
          .beta2 = trainer.beta2,
          .epsilon = trainer.epsilon,
          .weight_decay = trainer.weight_decay,
          .max_grad_norm = trainer.max_grad_norm,
          .nominal_tokens = nominal_tokens,
          .dynamic_loss_scale = f16,
          .initial_loss_scale = f16 ? trainer.initial_loss_scale : 1,
          .loss_scale_window = double(trainer.loss_scale_window)};
}

AdamW::AdamW(std::vector<model::Unit*> units, const Settings& settings) : units_(std::move(units)), settings_(settings) {
  base::check(!units_.empty(), "an optimizer has units");
  for (const auto* unit : units_) {
    base::check(unit->gradients().defined(), "an optimizer's units are trainable");
    exp_avg_.push_back(at::zeros_like(unit->master()));
    exp_avg_sq_.push_back(at::zeros_like(unit->master()));
  }
  restore_control(0, settings_.initial_loss_scale, 0, 0);
}

at::Tensor AdamW::sum_of_squares() const {
  std::vector<at::Tensor> flats;
  for (const auto* unit : units_) flats.push_back(unit->gradients());
  return kernels::sum_of_squares(flats);
}

void AdamW::finish_gradients(const at::Tensor& sum_of_squares, const at::Tensor& token_count, const at::Tensor& loss_sum) {
  kernels::finish_gradients(control_, scale_, sum_of_squares.to(at::kDouble), token_count.to(at::kDouble), loss_sum.to(at::kDouble),
                            {.nominal_tokens = settings_.nominal_tokens,
                             .max_norm = settings_.max_grad_norm,
                             .dynamic_scale = settings_.dynamic_loss_scale,
                             .scale_window = settings_.loss_scale_window});
}

void AdamW::step(double learning_rate) {
  for (std::size_t i = 0; i < units_.size(); ++i) {
    const auto& unit = *units_[i];
    kernels::adamw(unit.gradients(), unit.master(), unit.weights(), exp_avg_[i], exp_avg_sq_[i], control_,
                   {.learning_rate = learning_rate,
                    .beta1 = settings_.beta1,
                    .beta2 = settings_.beta2,
                    .epsilon = settings_.epsilon,
                    .weight_decay = settings_.weight_decay,
                    .decayed = unit.decayed(),
                    .zero_gradient = true});
  }
}

StepReport AdamW::report_of(const at::Tensor& control_on_host) {
  const auto c = control_of(control_on_host);
  return {.gradient_norm = c.gradient_norm,
          .skipped = c.skip != 0,
          .updates = std::int64_t(c.updates),
          .loss_scale = c.loss_scale,
          .skipped_in_a_row = std::int64_t(c.skipped_in_a_row),
          .skipped_total = std::int64_t(c.skipped_total)};
}

StepReport AdamW::report() const { return report_of(control_); }

std::int64_t AdamW::good_steps() const { return std::int64_t(control_of(control_).good_steps); }

std::vector<model::Unit::NamedView> AdamW::named_state() const {
  std::vector<model::Unit::NamedView> views;
  for (std::size_t i = 0; i < units_.size(); ++i) {
    for (auto& [name, view] : units_[i]->pieces_of(exp_avg_[i])) views.push_back({"exp_avg." + name, view});
    for (auto& [name, view] : units_[i]->pieces_of(exp_avg_sq_[i])) views.push_back({"exp_avg_sq." + name, view});
  }
  return views;
}

void AdamW::restore_control(std::int64_t updates, double loss_scale, std::int64_t good_steps, std::int64_t skipped_total) {
  const auto device = units_.front()->weights().device();
  control_ = control_tensor({.gradient_norm = 0,
                             .factor = 0,
                             .skip = 0,
                             .updates = double(updates),
                             .loss_scale = loss_scale,
                             .good_steps = double(good_steps),
                             .skipped_in_a_row = 0,
                             .skipped_total = double(skipped_total)},
                            device);
  scale_ = at::full({}, loss_scale / settings_.nominal_tokens, at::TensorOptions().dtype(at::kFloat)).to(device);
}

}  // namespace lockstep::optim
