// Text from the model while it trains.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "rank/task/generator.h"
#include "rank/train/run.h"

namespace lockstep::train {

class Samples {
 public:
  explicit Samples(const Run& run) : run_(run) {}

  // Collective. Rank r writes the samples i of monitor.sample_prompts with i % ranks == r; rank 0 records all of them, in order. Where the
  // tokenizer has a chat template, a prompt is what a user says.
  void write(const comm::Group& ranks);

 private:
  std::vector<std::string> own_share(const comm::Group& ranks, const std::vector<std::string>& prompts);

  const Run& run_;
  std::shared_ptr<const task::Language> language_;  // opened at the first sample
};

}  // namespace lockstep::train
