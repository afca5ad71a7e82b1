// Text to tokens and back: the one seam between whoever has text and whoever has tokens.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace lockstep::text {

enum class Answers { find, leave_out };  // where all is trained, it does not matter what the assistant said

// How a model's tokens read. Immutable; any thread may call it. What is said here of conversations holds where there is no template.
class Language {
 public:
  virtual ~Language() = default;

  virtual Encoded encode(std::string_view text, SpecialTokens special) const = 0;
  // Special tokens are left out; of half a character, U+FFFD is read.
  virtual std::string decode(std::span<const std::int32_t> tokens) const = 0;
  // A text to go on from. Never empty: an empty text is what a text begins with.
  virtual std::vector<std::int32_t> encode_prompt(std::string_view text) const = 0;
  virtual std::string spell(std::int32_t token) const = 0;  // as the vocabulary has it

  // Tokens that have a reading; a model's vocabulary may be larger. 0: all of the model's.
  virtual std::int64_t size() const = 0;
  // The token behind which a text is over, in what is trained on.
  virtual std::optional<std::int32_t> end() const { return std::nullopt; }
  // A text that is written is over at any of these.
  virtual std::vector<std::int32_t> end_tokens() const;
  // The token that is spelled so and that decode() leaves out: a stop string that is one can only be met as a token.
  virtual std::optional<std::int32_t> hidden_token(std::string_view /*text*/) const { return std::nullopt; }
  // How many tokens before it may change how a token reads.
  virtual std::size_t memory() const { return std::size_t(-1); }

  virtual bool has_template() const { return false; }
  // messages: [{"role":, "content":}, ...]. Only with a template.
  virtual Rendered render(const nlohmann::ordered_json& messages, const RenderOptions& options, Answers answers) const;
  // A conversation up to where the assistant speaks. Without a template it is its last message's text.
  virtual std::vector<std::int32_t> encode_chat(const nlohmann::ordered_json& messages) const;

  virtual std::string name() const = 0;      // for messages: the tokenizer's file
  virtual std::string identity() const = 0;  // equal where equal text gives equal tokens
  // Reads now what else is read when it is first asked for: most of a second for 128 thousand tokens.
  virtual void read() const {}
};

// A tokenizer.json, or the folder that holds one, with what stands beside it. chat_template: another one (a file or its text), or empty.
// UserError(ExitCode::data) at once where there is no such file, and from read() or the first call where it is broken.
std::shared_ptr<const Language> model_language(const std::filesystem::path& folder_or_file, const std::string& chat_template = {});

// Text is its bytes.
std::shared_ptr<const Language> byte_language();
// Token files come without a tokenizer: text is numbers ("17 4 99"); other text is taken as bytes.
std::shared_ptr<const Language> number_language(std::int64_t size);

}  // namespace lockstep::text
