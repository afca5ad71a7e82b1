// Tokenizes a run's data before any of its ranks starts, so that none waits for it with a collective pending.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "config/run_config.h"
#include "corpus/prepare/prepare.h"

namespace lockstep::job {

// One part of the data, ready: training, or the validation file.
struct PreparedPart {
  std::string path;
  corpus::Prepared prepared;
};

// What hears of the work; called by one thread at a time, not always by the caller's. What it throws ends the work.
struct DataListener {
  std::function<void(const std::string& path, double share)> on_progress;
  std::function<void(const std::string& path)> on_wait;  // another process tokenizes it already
};

// Empty where the data is not of a kind that is tokenized.
std::vector<PreparedPart> prepare_data(const config::RunConfig& config, const DataListener& listener);
// One file of it, with a tokenizer that is open already.
PreparedPart prepare_part(const config::DataConfig& data, std::int64_t seq_len, const std::shared_ptr<const text::Language>& language,
                          const DataListener& listener);

}  // namespace lockstep::job
