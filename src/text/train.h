// Learning a tokenizer from texts: byte-level BPE, as GPT-2 has it.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::text {

struct TrainOptions {
  std::int64_t vocab_size = 32000;   // special tokens and the 256 bytes included
  std::int64_t min_frequency = 2;    // pairs seen less often are not joined
  std::vector<std::string> special;  // they get the first numbers, in this order
};

// The next text to learn from, which must live until the next call; nothing at the end. Called by one thread at a time, not always the
// same one; what it throws ends the training and is thrown again.
using NextText = std::function<std::optional<std::string_view>()>;

// A tokenizer.json.
std::string train_bpe(const TrainOptions& options, const NextText& next);

}  // namespace lockstep::text
