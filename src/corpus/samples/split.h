// Which samples are trained and which are held back, which share a row, and how many there are: the same for a rank and for a plan.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "config/run_config.h"
#include "corpus/prepare/cache.h"

namespace lockstep::corpus {

// Which samples are for training and which are held back. Records are drawn, the same ones whatever the seed; pieces of one text stay
// together; training keeps at least one.
struct Split {
  std::vector<std::uint32_t> training, validation;
};
Split split(const Cache& cache, double validation_fraction);

// Of so many samples, how many are held back: the share, but for one that is left to train on.
std::int64_t held_back(std::int64_t samples, double validation_fraction);

// Rows of up to `capacity` positions, filled with samples 0..count-1 by first-fit. Which samples share a row is drawn from the seed once,
// so that every epoch has as many rows. shuffle: samples of a row come from anywhere, the longest first; else from nearby, in order.
std::vector<std::vector<std::uint32_t>> pack_rows(std::int64_t count, const std::function<std::int64_t(std::int64_t)>& length,
                                                  std::int64_t capacity, std::int64_t seed, bool shuffle);

// Samples of one epoch of training, after validation is held back and records are packed. Tokenises what is not in the cache yet, as a
// run would.
std::int64_t count_training_samples(const config::RunConfig& config);

// UserError(ExitCode::data) where training or validation data is not there.
void check_data_exists(const config::RunConfig& config);

}  // namespace lockstep::corpus
