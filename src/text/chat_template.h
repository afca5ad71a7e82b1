// A chat template (Jinja) as models ship it: messages in, the text that the model was trained on out, with what the assistant said marked.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "text/tokenizer.h"

namespace lockstep::text {

struct Rendered {
  std::string text;
  // What the assistant produced, end-of-turn token included, in bytes of `text`, in order: one for each assistant message. A template
  // with {% generation %} marks says itself what counts: one for each mark, which may be more or fewer.
  std::vector<TokenSpan> answers;
  std::uint32_t said_none = 0;  // how often a null of the conversation was written as the word None
};

// 1 for every token of which any byte lies in an answer: what transformers calls the assistant mask. Both in the order of the text.
std::vector<std::uint8_t> answer_mask(std::span<const TokenSpan> tokens, std::span<const TokenSpan> answers);

struct RenderOptions {
  bool add_generation_prompt = false;
  const nlohmann::ordered_json* tools = nullptr;      // list of function descriptions
  const nlohmann::ordered_json* variables = nullptr;  // object: further names a template may read (enable_thinking, documents, ...)
};

// Immutable; any thread may call it.
class ChatTemplate {
 public:
  // Throws UserError(ExitCode::data) that names `where`, the line and what is wrong.
  ChatTemplate(const std::string& source, const TokenizerFiles& files, std::string where);
  ~ChatTemplate();
  ChatTemplate(const ChatTemplate&) = delete;

  // messages: [{"role": ..., "content": ..., ...}, ...]. A raise_exception of the template becomes a UserError with its words.
  std::string render(const nlohmann::ordered_json& messages, const RenderOptions& options = {}) const;
  // The same, without answers.
  Rendered render_plain(const nlohmann::ordered_json& messages, const RenderOptions& options = {}) const;
  // The same, with the assistant's parts: from {% generation %} marks where the template has them, else by rendering the
  // conversation up to each message and comparing. Throws UserError(ExitCode::data) where an answer cannot be told from the rest.
  Rendered render_marked(const nlohmann::ordered_json& messages, const RenderOptions& options = {}) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace lockstep::text
