// Finds answers by rendering the conversation up to each of them; where that text changes later on, by what the message says. What the
// template wrote while it was at the message bounds the search, and is the answer where nothing else tells.
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
  Finder(const Json& messages, std::string_view text, std::span<const Turn> turns, const TurnEnds& ends, std::string_view where,
         const RenderPart& render)
      : messages_(messages), text_(text), turns_(turns), ends_(ends), where_(where), render_(render) {}

  std::vector<TokenSpan> all() {
    std::vector<TokenSpan> answers;
    for (std::size_t i = 0; i < messages_.size(); ++i) {
      if (messages_[i].value("role", "") != "assistant") continue;
      const Span answer = find(i);
      answers.push_back({static_cast<std::uint32_t>(answer.begin), static_cast<std::uint32_t>(answer.end)});
      cursor_ = answer.end;
    }
    return answers;
  }

 private:
  struct Span {
    std::size_t begin = 0, end = 0;
  };

  // What is known of an answer: its words, and what the template writes before it.
  struct Answer {
    std::string_view words;
    bool calls_tools = false;
    std::optional<std::string> prompted, unprompted;
    std::string prompt;
    std::string lead;  // what an answer starts with before its words, in a template without prompt: a space, mostly
  };

  // A template may refuse a part of a conversation that it takes as a whole.
  std::optional<std::string> rendered(const Json& messages, bool prompt) const {
    try {
      return render_(messages, prompt);
    } catch (const base::UserError&) {
      return std::nullopt;
    }
  }

  std::optional<std::string> part(std::size_t count, bool prompt) const {
    Json first = Json::array();
    for (std::size_t i = 0; i < count; ++i) first.push_back(messages_[i]);
    return rendered(first, prompt);
  }

  // First the answer is found where it ends the conversation; mostly the whole conversation starts in just that way.
  Span find(std::size_t index) const {
    const auto through = part(index + 1, false);
    const Answer answer = look(index, through);
    const auto own = turn_of(index, answer);
    const auto fits = [&](Span span) { return !own || (span.begin >= own->begin && span.end <= own->end); };
    if (through) {
      const auto alone = locate(*through, answer, 0, true);
      const bool starts = alone && alone->begin >= cursor_ && text_.starts_with(std::string_view(*through).substr(0, alone->end));
      if (starts && fits(*alone)) return *alone;
      if (alone) {
        if (const auto moved = find_again(index, *through, *alone); moved && fits(*moved)) return *moved;
      }
    }
    const auto span = locate(text_, answer, behind_last_words(index), false);
    if (span && fits(*span)) return *span;
    if (own) return within_turn(answer, *own);
    throw lost(index);
  }

  // What the template wrote at this message, in one piece, if the message's words are in it.
  std::optional<Span> turn_of(std::size_t index, const Answer& answer) const {
    std::optional<Span> own;
    std::size_t pieces = 0;
    for (const Turn& turn : turns_) {
      if (turn.message != index) continue;
      if (!own) own = Span{turn.span.begin, turn.span.begin};
      own->end = turn.span.end;
      ++pieces;
    }
    if (!own || own->begin < cursor_) return std::nullopt;
    const bool apart = pieces > 1 && std::any_of(turns_.begin(), turns_.end(), [&](const Turn& other) {
                         return other.message != index && other.span.begin >= own->begin && other.span.end <= own->end;
                       });
    const std::string_view written = text_.substr(own->begin, own->end - own->begin);
    if (apart || (!answer.words.empty() && written.find(answer.words) == npos)) return std::nullopt;
    return own;
  }

  // The turn without its header and without what follows the token that ends it.
  Span within_turn(const Answer& answer, Span own) const {
    const std::string_view upto = text_.substr(0, own.end), written = upto.substr(own.begin);
    std::size_t begin = own.begin;
    if (answer.prompted && upto.starts_with(*answer.prompted) && answer.prompted->size() >= own.begin) {
      begin = answer.prompted->size();
    } else if (!answer.prompt.empty()) {
      const std::size_t header = written.find(head_of(answer.prompt));
      if (header != npos) {
        begin = std::max(own.begin + header + head_of(answer.prompt).size(),
                         own.begin + header + whole_pieces(written.substr(header), answer.prompt));
      }
    } else if (!answer.words.empty()) {
      begin = own.begin + written.find(answer.words);
      if (upto.substr(own.begin, begin - own.begin).ends_with(answer.lead)) begin -= answer.lead.size();
    }
    begin = std::min(begin, own.end);
    const std::size_t said = answer.words.empty() ? npos : upto.find(answer.words, begin);
    const std::size_t behind = said == npos ? begin : said + answer.words.size();
    return {begin, end(upto, begin, behind, answer.calls_tools || answer.words.empty())};
  }

  Answer look(std::size_t index, const std::optional<std::string>& through) const {
    Answer turn{.words = words_of(messages_[index]), .calls_tools = calls_tools(messages_[index])};
    turn.prompted = part(index, true);
    if (turn.prompted && turn.prompted->empty()) turn.prompted.reset();
    // Mostly that is all one needs to know; rendering is what takes the time.
    if (turn.prompted && through && through->starts_with(*turn.prompted) && text_.starts_with(*turn.prompted)) return turn;
    turn.unprompted = part(index, false);
    turn.prompt = difference(turn.prompted, turn.unprompted);
    if (!turn.prompt.empty()) return turn;
    // Nothing to answer, a template that does not like to end here, or one without a prompt: try it on a plain question.
    Json talk = Json::array({{{"role", "user"}, {"content", "?"}}});
    const auto question = rendered(talk, true);
    turn.prompt = difference(question, rendered(talk, false));
    if (!turn.prompt.empty()) return turn;
    talk.push_back({{"role", "assistant"}, {"content", "42"}});
    const std::string reply = difference(rendered(talk, false), question);
    turn.lead = reply.substr(0, std::min(reply.size(), reply.find("42")));
    return turn;
  }

  static std::string difference(const std::optional<std::string>& longer, const std::optional<std::string>& shorter) {
    if (!longer || !shorter || !longer->starts_with(*shorter)) return {};
    return longer->substr(shorter->size());
  }

  // `closed`: the text ends with this answer, so what ends the text ends the answer.
  std::optional<Span> locate(std::string_view text, const Answer& turn, std::size_t from, bool closed) const {
    std::size_t begin = 0, said_from = from;
    if (turn.prompted && text.starts_with(*turn.prompted) && turn.prompted->size() >= from) {
      begin = said_from = turn.prompted->size();
    } else if (turn.prompted && turn.unprompted && text.starts_with(*turn.unprompted) && turn.unprompted->size() >= from) {
      // It is asked for in another way than it is written (with a thought, say): the prompt counts as far as it stands here.
      said_from = turn.unprompted->size();
      begin = said_from + whole_pieces(text.substr(said_from), turn.prompt);
    } else if (const std::size_t header = turn.prompt.empty() ? npos : text.find(head_of(turn.prompt), from); header != npos) {
      said_from = header + head_of(turn.prompt).size();
      begin = std::max(said_from, header + whole_pieces(text.substr(header), turn.prompt));
    } else {
      begin = said_from = turn.words.empty() ? npos : closed ? text.rfind(turn.words) : text.find(turn.words, from);
      if (begin != npos && text.substr(0, begin).ends_with(turn.lead)) begin -= turn.lead.size();
    }
    if (begin == npos || begin < from) return std::nullopt;
    const std::size_t said = turn.words.empty() ? begin : text.find(turn.words, said_from);
    if (said == npos && !closed) return std::nullopt;
    if (said == npos) return Span{begin, end(text, begin, begin, true)};  // the template leaves these words out
    begin = std::min(begin, said);
    return Span{begin, end(text, begin, said + turn.words.size(), closed && (turn.calls_tools || turn.words.empty()))};
  }

  // How much of the prompt the text starts with, in whole special tokens and lines where the two part ways.
  std::size_t whole_pieces(std::string_view text, std::string_view prompt) const {
    const std::size_t common = common_prefix(text, prompt);
    if (common == prompt.size()) return common;
    const std::string_view shared = prompt.substr(0, common);
    const Found token = last_of(shared, 0, ends_.special_texts);
    const std::size_t line = shared.rfind('\n');
    const std::size_t cut = std::max(token.at == npos ? 0 : token.at + token.size, line == npos ? 0 : line + 1);
    return cut > 0 ? cut : common;
  }

  // The same answer later in the conversation, known by what stands before it.
  std::optional<Span> find_again(std::size_t index, std::string_view alone, Span answer) const {
    const std::string_view before = index == 0 ? std::string_view() : words_of(messages_[index - 1]);
    const std::size_t asked = before.empty() ? npos : alone.substr(0, answer.begin).rfind(before);
    const std::size_t context = asked != npos ? asked + before.size() : answer.begin - std::min<std::size_t>(answer.begin, 24);
    const std::size_t at = text_.find(alone.substr(context, answer.end - context), std::max(cursor_, behind_last_words(index)));
    if (at == npos) return std::nullopt;
    return Span{at + answer.begin - context, at + answer.end - context};
  }

  // Behind what others said since the previous answer.
  std::size_t behind_last_words(std::size_t index) const {
    std::size_t behind = cursor_;
    for (std::size_t i = index; i-- > 0 && messages_[i].value("role", "") != "assistant";) {
      const std::string_view words = words_of(messages_[i]);
      const std::size_t at = words.empty() ? npos : text_.find(words, cursor_);
      if (at != npos) behind = std::max(behind, at + words.size());
    }
    return behind;
  }

  // Behind the end-of-turn token: the first special token after the words. `several`: others may stand before it, so one that stops
  // generation counts, or the last one. Without any: where the answer's last word ends.
  std::size_t end(std::string_view text, std::size_t begin, std::size_t said_end, bool several) const {
    Found stop = first_of(text, said_end, ends_.end_texts);
    if (several && stop.at == npos) stop = last_of(text, said_end, ends_.special_texts);
    if (!several) {
      const Found special = first_of(text, said_end, ends_.special_texts);
      if (special.at < stop.at) stop = special;
    }
    if (stop.at != npos) return stop.at + stop.size;
    const std::size_t last = text.substr(begin).find_last_not_of(" \t\r\n");
    return last == npos ? begin : begin + last + 1;
  }

  base::UserError lost(std::size_t index) const {
    return base::data_error("text",
                            "{}: message {} (assistant) cannot be found in the rendered conversation, so it is not known what to train on. "
                            "Put {{% generation %}} and {{% endgeneration %}} around what the assistant says in the template, or train on "
                            "everything with data.train_on=all",
                            where_, index + 1);
  }

  const Json& messages_;
  std::string_view text_;
  std::span<const Turn> turns_;
  TurnEnds ends_;
  std::string_view where_;
  const RenderPart& render_;
  std::size_t cursor_ = 0;  // behind the previous answer
};

}  // namespace

std::vector<TokenSpan> find_answers(const Json& messages, std::string_view text, std::span<const Turn> turns, const TurnEnds& ends,
                                    std::string_view where, const RenderPart& render) {
  return Finder(messages, text, turns, ends, where, render).all();
}

}  // namespace lockstep::text
