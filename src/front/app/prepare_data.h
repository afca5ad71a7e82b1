// Tokenises a run's data before any of its ranks starts, so that none waits for it with a collective pending.
#pragma once

#include <string>
#include <vector>

#include "config/run_config.h"
#include "records/prepare.h"

namespace lockstep::app {

// One part of the data, ready: training, or the validation file.
struct PreparedPart {
  std::string path;
  records::Prepared prepared;
};

// Shows a bar on a terminal. Empty where the data is not of a kind that is tokenised.
std::vector<PreparedPart> prepare_data(const config::RunConfig& config);
// One file of it, with a tokenizer that is open already.
PreparedPart prepare_part(const config::DataConfig& data, std::int64_t seq_len, const std::shared_ptr<const records::Words>& words);
// "chat.jsonl: 12,345 records, 4.1M tokens, 38% trained, 12 cut; cached"
std::string describe(const PreparedPart& part);

}  // namespace lockstep::app
