// Samples of what the model can do, written by all ranks while it trains.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "rank/task/task.h"
#include "rank/train/run.h"

namespace lockstep::train {

class Samples {
 public:
  explicit Samples(const Run& run);

  // What cannot be read for them is an error as soon as it is known, not when the first sample is due. Cheap.
  void look();

  // Whether there is anything to write with. The same on every rank.
  bool can_write() const { return sampler_ != nullptr; }

  // Collective. Rank r writes the samples i with i % ranks == r; rank 0 records all of them, in order.
  void write(const comm::Group& ranks);

 private:
  bool together() const;
  std::vector<std::string> own_share(const comm::Group& ranks);

  const Run& run_;
  std::unique_ptr<task::Sampler> sampler_;  // null: nothing to write with
};

}  // namespace lockstep::train
