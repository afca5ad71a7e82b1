// Tokenizer and chat template as records need them: one seam, so that tests can put simple ones in their place.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "config/run_config.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace lockstep::corpus {

enum class Answers { find, leave_out };  // where all is trained, it does not matter what the assistant said

// Immutable; any thread may call it.
class Words {
 public:
  virtual ~Words() = default;
  virtual text::Encoded encode(std::string_view text, text::SpecialTokens special) const = 0;
  virtual bool has_template() const = 0;
  virtual text::Rendered render(const nlohmann::ordered_json& messages, const text::RenderOptions& options, Answers answers) const = 0;
  virtual std::optional<std::int32_t> end() const = 0;      // the token after which a text is over
  virtual std::string spell(std::int32_t token) const = 0;  // as the vocabulary has it
  virtual std::string name() const = 0;                     // for messages: the tokenizer's file
  virtual std::string identity() const = 0;                 // equal for equal content of tokenizer and template
};

// The tokenizer that data.tokenizer or else model.path names, with its template or the one of data.chat_template.
std::shared_ptr<const Words> open_words(const config::DataConfig& data, const config::ModelConfig& model);
// Where its tokenizer.json is looked for; empty where no tokenizer is named.
std::string tokenizer_path(const config::DataConfig& data, const config::ModelConfig& model);

}  // namespace lockstep::corpus
