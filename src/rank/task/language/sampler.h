// Text from a model while it trains.
#pragma once

#include <memory>

#include "config/run_config.h"
#include "rank/data/data.h"
#include "rank/task/task.h"

namespace lockstep::task {

// Texts of monitor.sample_prompts. Where the tokenizer has a chat template, a prompt is what a user says. writes: the tokenizer is read
// from here on, beside training: that can take most of a second.
std::unique_ptr<Sampler> make_text_sampler(const config::RunConfig& config, std::shared_ptr<const data::Vocabulary> vocabulary, bool writes,
                                           at::Device device);

}  // namespace lockstep::task
