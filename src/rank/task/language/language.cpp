// Vocabularies and tokenizers as languages, and the reader that never splits a character.
#include "rank/task/language/language.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/utf8.h"
#include "base/files.h"
#include "rank/data/vocabularies.h"
#include "text/template_source.h"

namespace lockstep::task {
namespace {

class VocabularyLanguage final : public Language {
 public:
  explicit VocabularyLanguage(std::shared_ptr<const data::Vocabulary> vocabulary) : vocabulary_(std::move(vocabulary)) {
    if (const auto end = vocabulary_->end()) ends_.push_back(*end);
  }
  std::vector<std::int32_t> encode(std::string_view text) const override {
    auto tokens = vocabulary_->encode(text);
    return tokens.empty() ? vocabulary_->encode("\n") : tokens;
  }
  std::vector<std::int32_t> encode_chat(const nlohmann::ordered_json& messages) const override {
    return encode(messages.back().at("content").get<std::string>());
  }
  std::string decode(std::span<const std::int32_t> tokens) const override { return vocabulary_->decode(tokens); }
  bool can_chat() const override { return false; }
  const std::vector<std::int32_t>& end_tokens() const override { return ends_; }
  std::optional<std::int32_t> hidden_token(std::string_view) const override { return std::nullopt; }
  std::int64_t size() const override { return vocabulary_->size(); }
  std::size_t memory() const override { return std::size_t(-1); }

 private:
  std::shared_ptr<const data::Vocabulary> vocabulary_;
  std::vector<std::int32_t> ends_;
};

class TokenizerLanguage final : public Language {
 public:
  TokenizerLanguage(const std::filesystem::path& where, const std::string& chat_template)
      : folder_(std::filesystem::is_directory(where) ? where
                : where.has_parent_path()            ? where.parent_path()
                                                     : "."),
        tokenizer_(text::Tokenizer::open(where)),
        files_(text::read_tokenizer_files(folder_, *tokenizer_)) {
    std::string source = files_.chat_template, from = files_.chat_template_from;
    if (!chat_template.empty()) {
      text::TemplateSource given = text::read_template(chat_template);
      source = std::move(given.source);
      from = std::move(given.name);
    }
    if (!source.empty()) template_.emplace(source, files_, from);
  }

  std::vector<std::int32_t> encode(std::string_view text) const override {
    auto tokens = tokenizer_->encode(text, text::SpecialTokens::add);
    const auto plain = tokenizer_->encode(text, text::SpecialTokens::leave_out);
    // A tokenizer that ends every text would leave nothing to go on from.
    const auto& ends = files_.end_tokens;
    if (tokens.size() > plain.size() && std::find(ends.begin(), ends.end(), tokens.back()) != ends.end() && tokens.size() > 1 &&
        (plain.empty() || plain.back() != tokens.back()))
      tokens.pop_back();
    if (!tokens.empty()) return tokens;
    for (const std::string* start : {&files_.bos, &files_.eos}) {
      if (const auto token = start->empty() ? std::nullopt : tokenizer_->find(*start)) return {*token};
    }
    throw base::data_error("generate",
                           "the prompt is empty, and the tokenizer of {} names no token that a text begins with. Give a prompt.",
                           folder_.string());
  }
  std::vector<std::int32_t> encode_chat(const nlohmann::ordered_json& messages) const override {
    if (!template_) {
      throw base::data_error("generate",
                             "{} has no chat template (tokenizer_config.json, chat_template.jinja). Give a prompt instead of messages.",
                             folder_.string());
    }
    return tokenizer_->encode(template_->render(messages, {.add_generation_prompt = true}), text::SpecialTokens::leave_out);
  }
  std::string decode(std::span<const std::int32_t> tokens) const override { return tokenizer_->decode(tokens, /*skip_special=*/true); }
  bool can_chat() const override { return template_.has_value(); }
  const std::vector<std::int32_t>& end_tokens() const override { return files_.end_tokens; }
  std::optional<std::int32_t> hidden_token(std::string_view text) const override {
    const auto token = tokenizer_->find(text);
    return token && tokenizer_->is_special(*token) ? token : std::nullopt;
  }
  std::int64_t size() const override { return 0; }
  std::size_t memory() const override { return 6; }

 private:
  std::filesystem::path folder_;
  std::shared_ptr<const text::Tokenizer> tokenizer_;
  text::TokenizerFiles files_;
  std::optional<text::ChatTemplate> template_;
};

constexpr std::string_view kBroken = "\xef\xbf\xbd";  // U+FFFD: what a tokenizer reads half a character as

// Bytes at the end that begin a character but do not finish it.
std::size_t unfinished(std::string_view text) {
  for (std::size_t back = 1; back <= std::min<std::size_t>(3, text.size()); ++back) {
    const auto byte = static_cast<unsigned char>(text[text.size() - back]);
    if (byte < 0x80) return 0;
    if (byte < 0xc0) continue;  // inside a character
    const std::size_t needs = byte >= 0xf0 ? 4 : byte >= 0xe0 ? 3 : 2;
    return needs > back ? back : 0;
  }
  return 0;
}

// How much of the text's end is the beginning of a stop string.
std::size_t begins_a_stop(std::string_view text, std::span<const std::string> stops) {
  std::size_t longest = 0;
  for (const std::string& stop : stops) {
    for (std::size_t size = std::min(stop.size() - 1, text.size()); size > longest; --size) {
      if (text.ends_with(std::string_view(stop).substr(0, size))) longest = size;
    }
  }
  return longest;
}

}  // namespace

std::shared_ptr<const Language> language_of(std::shared_ptr<const data::Vocabulary> vocabulary) {
  return std::make_shared<VocabularyLanguage>(std::move(vocabulary));
}

std::shared_ptr<const Language> language_of(const std::filesystem::path& folder_or_file, const std::string& chat_template) {
  return std::make_shared<TokenizerLanguage>(folder_or_file, chat_template);
}

std::shared_ptr<const Language> language_of_run(const config::RunConfig& config, const data::Vocabulary* vocabulary) {
  const std::filesystem::path tokenizer = config.data.tokenizer.empty() ? config.model.path : config.data.tokenizer;
  if (std::filesystem::is_regular_file(tokenizer) || std::filesystem::exists(tokenizer / "tokenizer.json"))
    return language_of(tokenizer, config.data.chat_template);
  if (vocabulary != nullptr) return language_of(std::shared_ptr<const data::Vocabulary>(std::shared_ptr<void>(), vocabulary));
  return language_of(data::open_dataset(config.data, config.model, config.trainer.seed).vocabulary);
}

TextStream::TextStream(const Language& language, std::span<const std::int32_t> prompt, std::span<const std::string> stops)
    : language_(&language), stops_(stops) {
  const auto memory = std::min(prompt.size(), language.memory());
  tokens_.assign(prompt.end() - std::ptrdiff_t(memory), prompt.end());
  read_ = tokens_.size();
}

// A token may change how those before it read, so the text of a few is compared with and without the new ones.
std::string TextStream::read_new(bool all) {
  const std::span<const std::int32_t> tokens(tokens_);
  const std::string before = language_->decode(tokens.subspan(before_, read_ - before_)), now = language_->decode(tokens.subspan(before_));
  std::string piece = now.size() > before.size() ? now.substr(before.size()) : "";
  if (!all && (piece.empty() || piece.ends_with(kBroken) || unfinished(piece) > 0)) return "";
  if (language_->memory() < tokens_.size()) before_ = std::max(before_, tokens_.size() - language_->memory());
  read_ = tokens_.size();
  return base::valid_utf8(piece);
}

std::string TextStream::give(std::string piece) {
  text_ += piece;
  return piece;
}

std::string TextStream::push(std::int32_t token) {
  tokens_.push_back(token);
  held_ += read_new(/*all=*/false);
  std::size_t first = std::string::npos;
  for (const std::string& stop : stops_) first = std::min(first, held_.find(stop));
  if (first != std::string::npos) {
    stopped_ = true;
    held_.resize(first);
    return give(std::exchange(held_, ""));
  }
  const std::size_t certain = held_.size() - begins_a_stop(held_, stops_);
  std::string piece = held_.substr(0, certain);
  held_.erase(0, certain);
  return give(std::move(piece));
}

std::string TextStream::finish() {
  if (stopped_) return "";
  held_ += read_new(/*all=*/true);
  return give(std::exchange(held_, ""));
}

}  // namespace lockstep::task
