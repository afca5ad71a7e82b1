// How a model's tokens read as text, piece by piece while they come.
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

#include "rank/data/data.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace lockstep::task {

// Immutable; any thread may call it.
class Language {
 public:
  virtual ~Language() = default;
  // A text to go on from. Never empty: an empty text is what a text begins with.
  virtual std::vector<std::int32_t> encode(std::string_view text) const = 0;
  // A conversation up to where the assistant speaks: [{"role":, "content":}, ...].
  virtual std::vector<std::int32_t> encode_chat(const nlohmann::ordered_json& messages) const = 0;
  virtual std::string decode(std::span<const std::int32_t> tokens) const = 0;
  virtual bool can_chat() const = 0;
  // A text is over at any of these.
  virtual const std::vector<std::int32_t>& end_tokens() const = 0;
  // The token that is spelled so and that decode() leaves out: a stop string that is one can only be met as a token.
  virtual std::optional<std::int32_t> hidden_token(std::string_view text) const = 0;
  // Tokens that have a reading; a model's vocabulary may be larger. 0: all of the model's.
  virtual std::int64_t size() const = 0;
  // How many tokens before it may change how a token reads.
  virtual std::size_t memory() const = 0;
};

// The vocabulary of a run's data. It has no roles: a conversation is its last message's text.
std::shared_ptr<const Language> language_of(std::shared_ptr<const data::Vocabulary> vocabulary);
// A tokenizer.json, or the folder that holds one, with the chat template beside it; chat_template: another one (a file or its text), or
// empty.
std::shared_ptr<const Language> language_of(const std::filesystem::path& folder_or_file, const std::string& chat_template = {});

// The tokenizer that a run's settings name (data.tokenizer, model.path), else the vocabulary of its data, which is opened where none is
// given and must outlive the language otherwise.
std::shared_ptr<const Language> language_of_run(const config::RunConfig& config, const data::Vocabulary* vocabulary = nullptr);

// The text of one sequence while its tokens come. Gives out whole characters, and nothing that may turn out to begin a stop string.
class TextStream {
 public:
  TextStream(const Language& language, std::span<const std::int32_t> prompt, std::span<const std::string> stops);

  // What is certain now.
  std::string push(std::int32_t token);
  // What was held back: nothing follows.
  std::string finish();
  // A stop string was met; the text ends before it.
  bool stopped() const { return stopped_; }
  const std::string& text() const { return text_; }

 private:
  std::string read_new(bool all);
  std::string give(std::string piece);

  const Language* language_;
  std::span<const std::string> stops_;
  std::vector<std::int32_t> tokens_;   // of the prompt's end and everything since
  std::size_t before_ = 0, read_ = 0;  // tokens [before_, read_) are context, those behind have not been given out
  std::string held_, text_;
  bool stopped_ = false;
};

}  // namespace lockstep::task
