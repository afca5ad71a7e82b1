// How a step is judged from its reduced numbers: the same few lines on a CPU and inside a CUDA kernel.
#pragma once

#include "rank/kernels/rules/both.h"
#include "rank/kernels/table.h"

namespace lockstep::kernels {

LOCKSTEP_BOTH inline bool is_finite(double x) { return x - x == 0; }

LOCKSTEP_BOTH inline void decide(const FinishGradients& a, double root_of_squares) {
  Control& c = *a.control;
  const double tokens = *a.token_count;
  const bool finite = is_finite(root_of_squares) && is_finite(*a.loss_sum);
  // Gradients hold loss_scale / nominal_tokens times the summed loss's; this makes them the mean's.
  const double to_mean = tokens > 0 ? a.nominal_tokens / (tokens * c.loss_scale) : 0;
  c.gradient_norm = root_of_squares * to_mean;
  const double clip = a.max_norm > 0 ? a.max_norm / (c.gradient_norm + 1e-6) : 1;
  c.factor = to_mean * (clip < 1 ? clip : 1);
  // A batch without a single valid token teaches nothing, but is no failure.
  c.skip = finite && tokens > 0 ? 0 : 1;
  if (c.skip == 0) c.updates += 1;
  if (finite) {
    c.skipped_in_a_row = 0;
    c.good_steps += 1;
  } else {
    c.skipped_in_a_row += 1;
    c.skipped_total += 1;
    c.good_steps = 0;
  }
  if (a.dynamic_scale) {
    if (!finite && c.loss_scale > 1) c.loss_scale *= 0.5;
    if (finite && c.good_steps >= a.scale_window && c.loss_scale < 16777216.0) {
      c.loss_scale *= 2;
      c.good_steps = 0;
    }
  }
  *a.scale = float(c.loss_scale / a.nominal_tokens);
}

}  // namespace lockstep::kernels
