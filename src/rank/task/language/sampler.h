// Text from a model while it trains.
#pragma once

#include <memory>

#include "config/run_config.h"
#include "rank/task/task.h"
#include "text/language.h"

namespace lockstep::task {

// Texts of monitor.sample_prompts. Where the language has a chat template, a prompt is what a user says. writes: the tokenizer is read
// from here on, beside training: that can take most of a second.
std::unique_ptr<Sampler> make_text_sampler(const config::RunConfig& config, std::shared_ptr<const text::Language> language, bool writes,
                                           at::Device device, Follow follow);

}  // namespace lockstep::task
