// Text from the model while it trains.
#pragma once

#include <future>
#include <memory>
#include <string>
#include <vector>

#include "rank/task/language/generator.h"
#include "rank/train/run.h"

namespace lockstep::train {

class Samples {
 public:
  // A rank that will write reads its tokenizer from here on, beside training: that can take most of a second.
  explicit Samples(const Run& run);

  // A tokenizer that cannot be read is an error as soon as it is known, not when the first sample is due. Cheap.
  void look_at_tokenizer();

  // Whether there is anything to write with: a vocabulary, and monitor.sample_tokens. The same on every rank.
  bool can_write() const;

  // Collective. Rank r writes the samples i of monitor.sample_prompts with i % ranks == r; rank 0 records all of them, in order. Where the
  // tokenizer has a chat template, a prompt is what a user says.
  void write(const comm::Group& ranks);

 private:
  std::vector<std::string> own_share(const comm::Group& ranks, const std::vector<std::string>& prompts);
  const task::Language& language();

  const Run& run_;
  std::future<std::shared_ptr<const task::Language>> reading_;
  std::shared_ptr<const task::Language> language_;  // where this rank writes and it has been read
};

}  // namespace lockstep::train
