// From what a record says to tokens, and which of them are trained.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "config/run_config.h"
#include "corpus/formats/format.h"
#include "corpus/formats/language.h"

namespace lockstep::corpus {

// A record in tokens, before anything is cut.
struct Tokenized {
  std::string text;  // what was tokenized
  std::vector<std::int32_t> tokens;
  std::vector<text::TokenSpan> spans;  // of `text`; begin == end for what the tokenizer added
  std::vector<std::uint8_t> trained;   // 1: the model learns to say it
};

// Tokens [begin, end) of a record. The first is only read; each further one is predicted from those before it.
struct Piece {
  std::size_t begin = 0, end = 0;
};

// What became of a record.
enum class Fate {
  whole,      // kept as it is
  cut,        // kept in part
  pieces,     // raw text: kept as several samples, nothing is lost
  too_long,   // left out: data.too_long=skip
  untrained,  // left out: none of its tokens would be trained
};
struct Fitted {
  Fate fate = Fate::whole;
  std::vector<Piece> pieces;
};

// Immutable; any thread may call it.
class Encoder {
 public:
  // seq_len: positions of one sample, so it has up to seq_len + 1 tokens. Settings that matter are read from `data`.
  // UserError where the format needs a chat template and there is none.
  Encoder(std::shared_ptr<const text::Language> language, const config::DataConfig& data, config::RecordFormat format,
          std::int64_t seq_len);

  // Throws Unreadable.
  Tokenized encode(const Json& record) const;
  // Throws Refused where it is too long and data.too_long=error.
  Fitted fit(const Tokenized& whole) const;
  config::RecordFormat format() const { return format_; }

 private:
  Tokenized encode_conversation(const Conversation& conversation) const;
  Tokenized encode_exchange(const Exchange& exchange) const;
  Tokenized encode_text(std::string text) const;

  std::shared_ptr<const text::Language> language_;
  config::DataConfig data_;
  config::RecordFormat format_;
  config::TrainOn train_on_;
  std::size_t longest_;
};

}  // namespace lockstep::corpus
