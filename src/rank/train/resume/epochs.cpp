// Counted in samples, because steps of another batch size tell nothing.
#include "rank/train/resume/epochs.h"

#include <algorithm>
#include <cmath>

namespace lockstep::train {

std::int64_t Epochs::steps() const { return static_cast<std::int64_t>(std::ceil(asked * static_cast<double>(steps_of_one()))); }

std::int64_t Epochs::steps_left(const data::Position& position) const {
  const auto batches = [&](std::int64_t count) { return (std::max<std::int64_t>(count, 0) + global_batch - 1) / global_batch; };
  const std::int64_t last_epoch = steps() / steps_of_one();
  const std::int64_t last_steps = steps() % steps_of_one();  // of the epoch that is not trained whole
  if (position.epoch > last_epoch) return 0;
  if (position.epoch == last_epoch) return batches(std::min(last_steps * global_batch, samples) - position.sample);
  return batches(samples - position.sample) + (last_epoch - position.epoch - 1) * steps_of_one() + last_steps;
}

std::int64_t Epochs::steps_behind(const data::Position& position) const {
  return position.epoch * steps_of_one() + (position.sample + global_batch - 1) / global_batch;
}

}  // namespace lockstep::train
