// A tokenizer folder from text files: what transformers' AutoTokenizer loads.
#pragma once

#include <filesystem>
#include <string>

#include "front/tokenize/inputs.h"
#include "front/tokenize/tokenize.h"
#include "text/train.h"

namespace lockstep::tokenize {

struct TrainTokenizerOptions {
  InputOptions inputs;
  text::TrainOptions training;
  std::filesystem::path output;
  std::string eos;            // one of training.special
  std::string chat_template;  // source; empty: none
};

// Writes tokenizer.json, tokenizer_config.json and, where there is one, chat_template.jinja. Returns how much was read.
Totals train_tokenizer(const TrainTokenizerOptions& options, const Progress& progress);

}  // namespace lockstep::tokenize
