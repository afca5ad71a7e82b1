// The ChatTemplate over the Rust library: what a template sees, and words for its errors.
#include "text/chat_template.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "text/answers.h"
#include "text/native_call.h"

namespace lockstep::text {
namespace {

using Json = nlohmann::ordered_json;

struct TemplateFreer {
  void operator()(lockstep_template* handle) const { lockstep_template_free(handle); }
};

}  // namespace

struct ChatTemplate::Impl {
  std::string where;
  TokenizerFiles files;
  std::string named;  // "bos_token":"<s>",... as JSON members
  std::unique_ptr<lockstep_template, TemplateFreer> handle;
  bool has_marks = false;

  std::string variables(const Json& messages, const RenderOptions& options) const {
    try {
      std::string json = "{" + named;
      if (options.variables != nullptr) {
        for (const auto& [name, value] : options.variables->items()) json += Json(name).dump() + ":" + value.dump() + ",";
      }
      // A template asks `if tools`, or `is not none`: these names are always there.
      if (options.variables == nullptr || !options.variables->contains("documents")) json += "\"documents\":null,";
      json += "\"messages\":" + messages.dump();
      json += ",\"tools\":" + (options.tools != nullptr ? options.tools->dump() : std::string("null"));
      json += std::string(",\"add_generation_prompt\":") + (options.add_generation_prompt ? "true" : "false") + "}";
      return json;
    } catch (const Json::exception& failure) {
      throw base::data_error("text", "a conversation is not valid UTF-8: {}. Convert the file to UTF-8.", failure.what());
    }
  }

  // The template's own result: its {% generation %} blocks as answers, and whose turn each part of the text is.
  Rendered render(const Json& messages, const RenderOptions& options, std::vector<Turn>* turns = nullptr) const {
    const auto is_object = [](const Json& message) { return message.is_object(); };
    if (!messages.is_array() || !std::all_of(messages.begin(), messages.end(), is_object))
      throw base::data_error("text", "a conversation is a list of messages: [{{\"role\": \"user\", \"content\": \"...\"}}, ...].");
    const std::string json = variables(messages, options);
    NativeBytes text, error;
    NativeNumbers marks, parts;
    Rendered result;
    if (!lockstep_template_render(handle.get(), view_of(json), text.out(), marks.out(), parts.out(), &result.said_none, error.out()))
      throw base::data_error("text", "{}: {}", where, error.view());
    result.text = text.text();
    for (std::size_t i = 0; i < marks.all().size(); i += 2) result.answers.push_back({marks.all()[i], marks.all()[i + 1]});
    if (turns != nullptr) {
      for (std::size_t i = 0; i < parts.all().size(); i += 3) turns->push_back({parts.all()[i], {parts.all()[i + 1], parts.all()[i + 2]}});
    }
    return result;
  }
};

ChatTemplate::ChatTemplate(const std::string& source, const TokenizerFiles& files, std::string where) : impl_(std::make_unique<Impl>()) {
  impl_->where = std::move(where);
  impl_->files = files;
  for (const auto& [name, text] : files.named) impl_->named += Json(name).dump() + ":" + Json(text).dump() + ",";
  NativeBytes error;
  lockstep_template* handle = nullptr;
  if (!lockstep_template_open(view_of(source), &handle, error.out()))
    throw base::data_error("text", "{} is no chat template that can be used: {}", impl_->where, error.view());
  impl_->handle.reset(handle);
  impl_->has_marks = lockstep_template_has_marks(handle);
}

ChatTemplate::~ChatTemplate() = default;

std::string ChatTemplate::render(const Json& messages, const RenderOptions& options) const { return impl_->render(messages, options).text; }

Rendered ChatTemplate::render_plain(const Json& messages, const RenderOptions& options) const {
  Rendered result = impl_->render(messages, options);
  result.answers.clear();
  return result;
}

Rendered ChatTemplate::render_marked(const Json& messages, const RenderOptions& options) const {
  if (impl_->has_marks) return impl_->render(messages, options);
  const auto render = [&](const Json& part, bool prompt) {
    RenderOptions partial = options;
    partial.add_generation_prompt = prompt;
    return impl_->render(part, partial).text;
  };
  std::vector<Turn> turns;
  Rendered result = impl_->render(messages, options, &turns);
  result.answers = find_answers(messages, result.text, turns, {impl_->files.end_texts, impl_->files.special_texts}, impl_->where, render);
  return result;
}

std::vector<std::uint8_t> answer_mask(std::span<const TokenSpan> tokens, std::span<const TokenSpan> answers) {
  std::vector<std::uint8_t> mask(tokens.size());
  for (const TokenSpan& answer : answers) {
    auto token = std::lower_bound(tokens.begin(), tokens.end(), answer.begin,
                                  [](const TokenSpan& span, std::uint32_t at) { return span.begin < at; });
    while (token != tokens.begin() && std::prev(token)->end > answer.begin) --token;  // it begins in the header, with a blank mostly
    for (; token != tokens.end() && token->begin < answer.end; ++token) mask[static_cast<std::size_t>(token - tokens.begin())] = 1;
  }
  return mask;
}

}  // namespace lockstep::text
