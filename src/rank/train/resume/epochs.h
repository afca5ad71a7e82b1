// How many steps the epochs that were asked for take, from any place in the data and at any batch size.
#pragma once

#include <cstdint>

#include "rank/data/data.h"

namespace lockstep::train {

// The last batch of an epoch is filled up with samples of weight 0, so every epoch begins with a batch of its own.
struct Epochs {
  double asked = 1;
  std::int64_t samples = 0;  // of one epoch
  std::int64_t global_batch = 1;

  std::int64_t steps_of_one() const { return (samples + global_batch - 1) / global_batch; }
  // Of a run that begins at the beginning.
  std::int64_t steps() const;
  // From here to the end of what was asked for.
  std::int64_t steps_left(const data::Position& position) const;
  // Where a run that had this batch size from its beginning would be: what the schedule of the learning rate goes by.
  std::int64_t steps_behind(const data::Position& position) const;
};

}  // namespace lockstep::train
