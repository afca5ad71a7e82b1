// Learning rate of a step: warm-up, then constant, linear, cosine, or warm-up-stable-decay.
#include <algorithm>
#include <cmath>
#include <numbers>

#include "config/config.h"
#include "rank/optim/optim.h"

namespace lockstep::optim {

double learning_rate(const config::TrainerConfig& trainer, double peak, std::int64_t step, std::int64_t total) {
  const double warmup = double(config::warmup_steps(trainer, total));
  if (double(step) < warmup) return peak * double(step + 1) / warmup;
  const double low = peak * trainer.min_lr_ratio;
  const double last = double(std::max<std::int64_t>(total, 1));
  // Share of a stretch [from, last) that lies behind, 1 from its last step on.
  const auto progress = [&](double from) { return std::clamp((double(step) - from) / std::max(last - 1 - from, 1.0), 0.0, 1.0); };
  switch (trainer.lr_schedule) {
    case config::LrSchedule::constant: return peak;
    case config::LrSchedule::linear: return peak + (low - peak) * progress(warmup);
    case config::LrSchedule::cosine: return low + (peak - low) * 0.5 * (1 + std::cos(std::numbers::pi * progress(warmup)));
    case config::LrSchedule::wsd: {
      const double decay_from = std::max(warmup, last - std::ceil(last * trainer.decay_fraction));
      return peak + (low - peak) * progress(decay_from);
    }
  }
  return peak;
}

}  // namespace lockstep::optim
