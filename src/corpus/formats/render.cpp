// Tries what the record says first; then calls with their arguments as JSON text, then nothing where null would become the word None.
#include "corpus/formats/render.h"

#include <algorithm>
#include <optional>

#include "base/error.h"

namespace lockstep::corpus {
namespace {

// Calls `change` on the arguments of every call.
template <class Change>
void for_arguments(Json& messages, const Change& change) {
  for (Json& message : messages) {
    const auto calls = message.find("tool_calls");
    if (calls == message.end()) continue;
    for (Json& call : *calls) change(call["function"]["arguments"]);
  }
}

Json with_arguments_as_text(Json messages) {
  for_arguments(messages, [](Json& arguments) {
    if (!arguments.is_string()) arguments = arguments.dump();
  });
  return messages;
}

// {'place': 'here'}: the template puts the arguments into its text as they are, which is right for JSON text alone.
bool shows_python(const std::string& text, Json messages) {
  bool found = false;
  for_arguments(messages, [&](const Json& arguments) {
    if (arguments.is_object() && !arguments.empty()) found = found || text.find("{'" + arguments.begin().key() + "':") != text.npos;
  });
  return found;
}

bool says_nothing(const Json& message) {
  const auto content = message.find("content");
  return content != message.end() && content->is_null();
}

Json with_empty_contents(Json messages, bool of_all) {
  for (Json& message : messages) {
    if (says_nothing(message) && (of_all || message.at("role") == "assistant")) message["content"] = "";
  }
  return messages;
}

class Renderer {
 public:
  Renderer(const text::Language& language, const Conversation& conversation, bool all)
      : language_(language), conversation_(conversation), answers_(all ? text::Answers::leave_out : text::Answers::find) {}

  text::Rendered run() {
    Json messages = conversation_.messages;
    text::Rendered rendered = conversation_.open_calls ? render_calls(messages) : render(messages);
    // First the assistant's own nulls; those of others only where they would be trained.
    for (const bool of_all : {false, true}) {
      if (rendered.said_none == 0 || (of_all && !trains_none(rendered))) continue;
      if (auto other = attempt(with_empty_contents(messages, of_all)); other && other->said_none < rendered.said_none)
        rendered = std::move(*other);
    }
    if (trains_none(rendered))
      throw Unreadable("has a null that the chat template writes as the word None, which would be trained. Leave the field out");
    return rendered;
  }

 private:
  text::Rendered render(const Json& messages) const {
    return language_.render(messages, {.tools = conversation_.tools.is_null() ? nullptr : &conversation_.tools}, answers_);
  }

  std::optional<text::Rendered> attempt(const Json& messages) const {
    try {
      return render(messages);
    } catch (const base::UserError&) {
      return std::nullopt;
    }
  }

  text::Rendered render_calls(Json& messages) const {
    auto first = attempt(messages);
    if (first && !shows_python(first->text, messages)) return std::move(*first);
    const Json other = with_arguments_as_text(messages);
    auto second = attempt(other);
    if (!second) return first ? std::move(*first) : render(messages);  // the refusal of what the record says
    messages = other;
    return std::move(*second);
  }

  // A message that says "None" itself may be trained; a null that became the word may not.
  bool trains_none(const text::Rendered& rendered) const {
    const auto says_none = [](std::string_view text) { return text.find("None") != text.npos; };
    if (rendered.said_none == 0 || says_none(conversation_.messages.dump())) return false;
    if (answers_ == text::Answers::leave_out) return says_none(rendered.text);
    return std::any_of(rendered.answers.begin(), rendered.answers.end(), [&](const text::TokenSpan& answer) {
      return says_none(std::string_view(rendered.text).substr(answer.begin, answer.end - answer.begin));
    });
  }

  const text::Language& language_;
  const Conversation& conversation_;
  text::Answers answers_;
};

}  // namespace

text::Rendered render_conversation(const text::Language& language, const Conversation& conversation, bool all) {
  return Renderer(language, conversation, all).run();
}

}  // namespace lockstep::corpus
