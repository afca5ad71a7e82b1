// AdamW over units, learning-rate schedules, clipping and loss scaling. Decisions are made on the device: no step waits for the host.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "config/run_config.h"
#include "rank/model/unit.h"

namespace lockstep::optim {

// Learning rate of update `step` (0 is the first) of `total`: warm-up from 1/warmup of the peak, then the schedule. A pure function.
double learning_rate(const config::TrainerConfig& trainer, double peak, std::int64_t step, std::int64_t total);

// The numbers of a finished step, on the host.
struct StepReport {
  double gradient_norm = 0;  // of the mean gradient, before clipping
  bool skipped = false;      // loss or gradient was not finite, or no token was valid
  std::int64_t updates = 0;
  double loss_scale = 1;
  std::int64_t skipped_in_a_row = 0;
  std::int64_t skipped_total = 0;
};

// Owns the moments of its units and the control numbers on the device. One thread, the device's current stream. Not collective:
// the totals it is given are already summed over ranks, so every rank decides the same.
//
// One step:
//   scale()            -> what backward multiplies the summed loss with
//   ...forward, backward, reduction of gradients...
//   finish_gradients() -> norm, clipping, finite or skip, next loss scale
//   step(lr)           -> moments, master weights, weights; gradients become zero
class AdamW {
 public:
  struct Settings {
    double beta1 = 0.9, beta2 = 0.95, epsilon = 1e-8, weight_decay = 0.1;
    double max_grad_norm = 1;         // 0: no clipping
    double nominal_tokens = 1;        // global batch x sequence length: the constant that losses are divided by
    bool dynamic_loss_scale = false;  // f16
    double initial_loss_scale = 1;
    double loss_scale_window = 2000;
  };
  static Settings settings_for(const config::TrainerConfig& trainer, config::DType dtype, double nominal_tokens);

  AdamW(std::vector<model::Unit*> units, const Settings& settings);

  // f32 scalar on the device: loss_scale / nominal_tokens.
  const at::Tensor& scale() const { return scale_; }

  // Sum of squares of these units' gradients as they stand: f64 scalar on the device.
  at::Tensor sum_of_squares() const;
  // The totals over all ranks, scalars on the device of any float type: squares of the summed gradient, valid tokens, loss.
  void finish_gradients(const at::Tensor& sum_of_squares, const at::Tensor& token_count, const at::Tensor& loss_sum);
  void step(double learning_rate);

  // [8] f64 on the device, laid out as kernels::Control: copy it without waiting, read it with report_of.
  const at::Tensor& control() const { return control_; }
  static StepReport report_of(const at::Tensor& control_on_host);
  StepReport report() const;  // waits for the device

  // Moments for checkpoints: views by the parameters' names, "exp_avg.<name>" and "exp_avg_sq.<name>".
  std::vector<model::Unit::NamedView> named_state() const;
  void restore_control(std::int64_t updates, double loss_scale, std::int64_t good_steps, std::int64_t skipped_total);
  std::int64_t good_steps() const;  // waits for the device; for checkpoints

  const at::Tensor& exp_avg(std::size_t unit) const { return exp_avg_[unit]; }
  const at::Tensor& exp_avg_sq(std::size_t unit) const { return exp_avg_sq_[unit]; }

 private:
  std::vector<model::Unit*> units_;
  Settings settings_;
  std::vector<at::Tensor> exp_avg_, exp_avg_sq_;  // [unit.elements()] f32
  at::Tensor control_, scale_;
};

}  // namespace lockstep::optim
