// Languages that need no file: bytes and bare numbers.
#include "text/language.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/text.h"
#include "base/utf8.h"

namespace lockstep::text {
namespace {

class Bytes final : public Language {
 public:
  Encoded encode(std::string_view text, SpecialTokens) const override {
    Encoded encoded;
    for (std::uint32_t i = 0; i < text.size(); ++i) {
      encoded.tokens.push_back(static_cast<unsigned char>(text[i]));
      encoded.spans.push_back({i, i + 1});
    }
    return encoded;
  }
  std::string decode(std::span<const std::int32_t> tokens) const override {
    std::string text;
    text.reserve(tokens.size());
    // A model may have more tokens than there are bytes; untrained ones read as "?" in any encoding.
    for (const std::int32_t token : tokens) text += token >= 0 && token < 256 ? static_cast<char>(token) : '?';
    return base::valid_utf8(text);
  }
  std::vector<std::int32_t> encode_prompt(std::string_view text) const override {
    return encode(text.empty() ? "\n" : text, SpecialTokens::add).tokens;
  }
  std::string spell(std::int32_t token) const override { return decode({&token, 1}); }
  std::int64_t size() const override { return 256; }
  std::string name() const override { return "bytes"; }
  std::string identity() const override { return "bytes"; }
};

class Numbers final : public Language {
 public:
  explicit Numbers(std::int64_t size) : size_(size) {}

  Encoded encode(std::string_view text, SpecialTokens) const override {
    Encoded encoded;
    std::uint32_t begin = 0;
    for (const std::string& word : base::split(text, ' ')) {
      const auto number = base::parse_integer(word);
      if (!number || *number < 0 || *number >= size_) return bytes(text);
      const auto end = begin + static_cast<std::uint32_t>(word.size());
      encoded.tokens.push_back(static_cast<std::int32_t>(*number));
      encoded.spans.push_back({begin, end});
      begin = end + 1;
    }
    return encoded;
  }
  std::string decode(std::span<const std::int32_t> tokens) const override { return fmt::format("{}", fmt::join(tokens, " ")); }
  std::vector<std::int32_t> encode_prompt(std::string_view text) const override {
    auto tokens = encode(text, SpecialTokens::add).tokens;
    if (tokens.empty()) tokens = encode("\n", SpecialTokens::add).tokens;
    if (tokens.empty()) tokens = {0};  // so few numbers that no letter is one of them
    return tokens;
  }
  std::string spell(std::int32_t token) const override { return std::to_string(token); }
  std::int64_t size() const override { return size_; }
  std::string name() const override { return "numbers"; }
  std::string identity() const override { return fmt::format("numbers below {}", size_); }

 private:
  Encoded bytes(std::string_view text) const {
    Encoded encoded;
    for (std::uint32_t i = 0; i < text.size(); ++i) {
      const std::int32_t token = static_cast<unsigned char>(text[i]);
      if (token >= size_) continue;
      encoded.tokens.push_back(token);
      encoded.spans.push_back({i, i + 1});
    }
    return encoded;
  }
  std::int64_t size_;
};

}  // namespace

std::vector<std::int32_t> Language::end_tokens() const {
  const auto last = end();
  return last ? std::vector{*last} : std::vector<std::int32_t>();
}

Rendered Language::render(const nlohmann::ordered_json&, const RenderOptions&, Answers) const {
  throw base::Bug("only a language with a template renders conversations");
}

std::vector<std::int32_t> Language::encode_chat(const nlohmann::ordered_json& messages) const {
  return encode_prompt(messages.back().at("content").get<std::string>());
}

std::shared_ptr<const Language> byte_language() { return std::make_shared<Bytes>(); }
std::shared_ptr<const Language> number_language(std::int64_t size) { return std::make_shared<Numbers>(size); }

}  // namespace lockstep::text
