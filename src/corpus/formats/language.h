// The language that a run's settings name.
#pragma once

#include <memory>
#include <string>

#include "config/run_config.h"
#include "text/language.h"

namespace lockstep::corpus {

// Of the data that these settings name, which itself is not looked at: the tokenizer's where there is one, else what such data reads as.
std::shared_ptr<const text::Language> language_of(const config::DataConfig& data, const config::ModelConfig& model);
// Of data that is prepared with a tokenizer: that which data.tokenizer or else model.path names, with its template or data.chat_template.
std::shared_ptr<const text::Language> language_of_records(const config::DataConfig& data, const config::ModelConfig& model);
// Where its tokenizer.json is looked for; empty where no tokenizer is named.
std::string tokenizer_path(const config::DataConfig& data, const config::ModelConfig& model);

}  // namespace lockstep::corpus
