// Finds answers by rendering the conversation up to each of them; where that text changes later on, by what the message says.
#include "text/answers.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <optional>

#include "base/error.h"

namespace lockstep::text {
namespace {

using Json = nlohmann::ordered_json;
constexpr auto npos = std::string_view::npos;

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view space = " \t\r\n\f\v";
  const std::size_t begin = text.find_first_not_of(space);
  if (begin == npos) return {};
  return text.substr(begin, text.find_last_not_of(space) - begin + 1);
}

// The words of a message that a template is most likely to leave as they are: its last text, behind any thinking.
std::string_view words_of(const Json& message) {
  std::string_view words;
  if (const auto content = message.find("content"); content != message.end()) {
    if (content->is_string()) words = content->get_ref<const std::string&>();
    if (content->is_array()) {
      for (const Json& part : *content) {
        if (part.is_object() && part.contains("text") && part["text"].is_string()) words = part["text"].get_ref<const std::string&>();
      }
    }
  }
  if (const std::size_t thinking = words.rfind("</think>"); thinking != npos) words.remove_prefix(thinking + 8);
  return trimmed(words);
}

bool calls_tools(const Json& message) {
  const auto calls = message.find("tool_calls");
  return calls != message.end() && calls->is_array() && !calls->empty();
}

struct Found {
  std::size_t at = npos, size = 0;
};

Found first_of(std::string_view text, std::size_t from, std::span<const std::string> tokens) {
  Found best;
  for (const std::string& token : tokens) {
    const std::size_t at = token.empty() ? npos : text.find(token, from);
    if (at < best.at || (at == best.at && at != npos && token.size() > best.size)) best = {at, token.size()};
  }
  return best;
}

Found last_of(std::string_view text, std::size_t from, std::span<const std::string> tokens) {
  Found best;
  for (const std::string& token : tokens) {
    const std::size_t at = token.empty() ? npos : text.rfind(token);
    if (at != npos && at >= from && (best.at == npos || at + token.size() > best.at + best.size)) best = {at, token.size()};
  }
  return best;
}

std::size_t common_prefix(std::string_view a, std::string_view b) {
  return static_cast<std::size_t>(
      std::mismatch(a.begin(), a.begin() + static_cast<std::ptrdiff_t>(std::min(a.size(), b.size())), b.begin()).first - a.begin());
}

// The part of a generation prompt that also stands before answers of the past: its first line with anything on it, without thinking.
std::string_view head_of(std::string_view prompt) {
  const std::size_t line = prompt.find('\n', std::min(prompt.size(), prompt.find_first_not_of(" \t\r\n")));
  return prompt.substr(0, std::min(line == npos ? npos : line + 1, prompt.find("<think")));
}

class Finder {
 public:
  Finder(const Json& messages, std::string_view text, const TurnEnds& ends, std::string_view where, const RenderPart& render)
      : messages_(messages), text_(text), ends_(ends), where_(where), render_(render) {}

  std::vector<TokenSpan> all() {
    std::vector<TokenSpan> answers;
    for (std::size_t i = 0; i < messages_.size(); ++i) {
      if (messages_[i].value("role", "") != "assistant") continue;
      const TokenSpan answer = find(i);
      answers.push_back(answer);
      cursor_ = answer.end;
    }
    return answers;
  }

 private:
  // A template may refuse a part of a conversation that it takes as a whole.
  std::optional<std::string> part(std::size_t count, bool prompt) const {
    try {
      Json first = Json::array();
      for (std::size_t i = 0; i < count; ++i) first.push_back(messages_[i]);
      return render_(first, prompt);
    } catch (const base::UserError&) {
      return std::nullopt;
    }
  }

  TokenSpan find(std::size_t index) const {
    const std::string_view words = words_of(messages_[index]);
    const std::size_t begin = start(index, words);
    const auto through = part(index + 1, false);
    const bool same = through && through->size() >= begin && text_.starts_with(*through);
    const std::string_view region = text_.substr(0, same ? through->size() : text_.size());
    const std::size_t said = words.empty() ? begin : region.find(words, begin);
    if (said == npos) throw lost(index);
    return {static_cast<std::uint32_t>(begin), static_cast<std::uint32_t>(end(region, begin, said + words.size(), messages_[index]))};
  }

  std::size_t start(std::size_t index, std::string_view words) const {
    const auto prompted = part(index, true);
    if (prompted && prompted->size() >= cursor_ && text_.starts_with(*prompted)) return prompted->size();
    // The template writes this answer in another way than it asks for it (it asks to think, say, and leaves out thoughts): the
    // prompt counts as far as it stands here.
    const auto unprompted = part(index, false);
    const bool has_prompt = prompted && unprompted && prompted->starts_with(*unprompted);
    if (has_prompt && unprompted->size() >= cursor_ && text_.starts_with(*unprompted))
      return until_words(common_prefix(text_, *prompted), unprompted->size(), words, index);
    // Text before this answer changes with what comes after it: go by the words of the messages since the last answer.
    std::size_t at = cursor_;
    for (std::size_t i = index; i-- > 0 && messages_[i].value("role", "") != "assistant";) at = std::max(at, behind_words(messages_[i]));
    const std::string_view prompt = has_prompt ? std::string_view(*prompted).substr(unprompted->size()) : std::string_view();
    const std::size_t header = prompt.empty() ? npos : text_.find(head_of(prompt), at);
    if (header == npos) return until_words(text_.size(), at, words, index);
    return until_words(header + common_prefix(text_.substr(header), prompt), header + head_of(prompt).size(), words, index);
  }

  // What stands at `begin`, unless the answer's words start before it.
  std::size_t until_words(std::size_t begin, std::size_t from, std::string_view words, std::size_t index) const {
    if (words.empty()) return begin;
    const std::size_t said = text_.find(words, from);
    if (said == npos) throw lost(index);
    return std::min(begin, said);
  }

  std::size_t behind_words(const Json& message) const {
    const std::string_view words = words_of(message);
    const std::size_t at = words.empty() ? npos : text_.find(words, cursor_);
    return at == npos ? cursor_ : at + words.size();
  }

  // Behind the end-of-turn token; without one, where the answer's last word ends.
  std::size_t end(std::string_view region, std::size_t begin, std::size_t said_end, const Json& message) const {
    const Found stop = first_of(region, said_end, ends_.end_texts);
    if (calls_tools(message)) {
      const Found last = stop.at != npos ? stop : last_of(region, said_end, ends_.special_texts);
      if (last.at != npos) return last.at + last.size;
    } else {
      const Found special = first_of(region, said_end, ends_.special_texts);
      const Found first = special.at < stop.at ? special : stop;
      if (first.at != npos) return first.at + first.size;
    }
    const std::size_t last = region.substr(begin).find_last_not_of(" \t\r\n");
    return last == npos ? begin : begin + last + 1;
  }

  base::UserError lost(std::size_t index) const {
    return base::data_error("text",
                            "{}: message {} (assistant) cannot be found in the rendered conversation, so it is not known what to train on. "
                            "Put {{% generation %}} and {{% endgeneration %}} around what the assistant says in the template, or train on "
                            "everything.",
                            where_, index + 1);
  }

  const Json& messages_;
  std::string_view text_;
  TurnEnds ends_;
  std::string_view where_;
  const RenderPart& render_;
  std::size_t cursor_ = 0;  // behind the previous answer
};

}  // namespace

std::vector<TokenSpan> find_answers(const Json& messages, std::string_view text, const TurnEnds& ends, std::string_view where,
                                    const RenderPart& render) {
  return Finder(messages, text, ends, where, render).all();
}

}  // namespace lockstep::text
