// A tokenizer whose tokens can be read off the text, and a template whose text can be read off the messages.
#pragma once

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "text/language.h"

namespace lockstep::support {

// Every byte is a token. Template: "<role>content;" for each message; what is said and its ";" are the assistant's.
class SimpleLanguage final : public text::Language {
 public:
  static constexpr std::int32_t start = 256, stop = 257;

  explicit SimpleLanguage(bool with_template = true, bool adds_start = false) : with_template_(with_template), adds_start_(adds_start) {}

  text::Encoded encode(std::string_view text, text::SpecialTokens special) const override {
    text::Encoded encoded;
    if (adds_start_ && special == text::SpecialTokens::add) {
      encoded.tokens.push_back(start);
      encoded.spans.push_back({0, 0});
    }
    for (std::uint32_t i = 0; i < text.size(); ++i) {
      encoded.tokens.push_back(static_cast<unsigned char>(text[i]));
      encoded.spans.push_back({i, i + 1});
    }
    return encoded;
  }
  std::string decode(std::span<const std::int32_t> tokens) const override { return std::string(tokens.begin(), tokens.end()); }
  std::vector<std::int32_t> encode_prompt(std::string_view text) const override { return encode(text, text::SpecialTokens::add).tokens; }
  std::int64_t size() const override { return stop + 1; }
  bool has_template() const override { return with_template_; }
  text::Rendered render(const nlohmann::ordered_json& messages, const text::RenderOptions& options, text::Answers) const override {
    text::Rendered rendered;
    if (options.tools) rendered.text += "tools" + options.tools->dump() + ";";
    for (const auto& message : messages) {
      if (message["role"] == "nobody") throw base::data_error("text", "no such role");
      rendered.text += "<" + message["role"].get<std::string>() + ">";
      const auto begin = static_cast<std::uint32_t>(rendered.text.size());
      if (message.contains("tool_calls")) rendered.text += message["tool_calls"].dump();
      if (message.contains("content") && message["content"].is_string()) rendered.text += message["content"].get<std::string>();
      if (message.contains("weight") || message.contains("train")) rendered.text += "WEIGHT";
      rendered.text += ";";
      if (message["role"] == "assistant") rendered.answers.push_back({begin, static_cast<std::uint32_t>(rendered.text.size())});
    }
    return rendered;
  }
  std::optional<std::int32_t> end() const override { return stop; }
  std::string spell(std::int32_t token) const override { return std::to_string(token); }
  std::string name() const override { return "simple"; }
  std::string identity() const override { return with_template_ ? "simple with template" : "simple"; }

 private:
  bool with_template_, adds_start_;
};

}  // namespace lockstep::support
