// The vocabulary of the built-in stories: one function says how a token reads, and encode is its inverse by construction.
#include <algorithm>
#include <cctype>
#include <set>
#include <span>

#include "base/error.h"
#include "base/utf8.h"
#include "corpus/stories/stories.h"

namespace lockstep::corpus {
namespace {

bool is_letter(char c) { return std::isalpha(static_cast<unsigned char>(c)) != 0; }

// The word at the start of `text`: letters, with apostrophes between them ("don't").
std::string_view leading_word(std::string_view text) {
  std::size_t length = 0;
  while (length < text.size()) {
    const bool inner_apostrophe = text[length] == '\'' && length > 0 && length + 1 < text.size() && is_letter(text[length + 1]);
    if (!is_letter(text[length]) && !inner_apostrophe) break;
    ++length;
  }
  return text.substr(0, length);
}

std::string with_first(std::string_view word, int (*change)(int)) {
  std::string changed(word);
  if (!changed.empty()) changed[0] = static_cast<char>(change(static_cast<unsigned char>(changed[0])));
  return changed;
}

}  // namespace

StoryVocabulary::StoryVocabulary(std::vector<std::string> words) {
  for (int byte = 0; byte < 256; ++byte) add(Kind::byte, std::string(1, static_cast<char>(byte)));
  base::check(add(Kind::end, "\n\n") == end_of_story, "the end of a story follows the bytes");
  for (const char* stop : {".", "!", "?"}) marks_.push_back(add(Kind::stop, stop));
  marks_.push_back(add(Kind::comma, ","));
  possessive_ = add(Kind::suffix, "'s");
  opening_quote_ = add(Kind::opening_quote, "\"");
  closing_quote_ = add(Kind::closing_quote, "\"");
  for (const std::string& word : std::set<std::string>(words.begin(), words.end())) words_[word] = add(Kind::word, word);
}

std::int32_t StoryVocabulary::add(Kind kind, std::string text) {
  pieces_.push_back({kind, std::move(text)});
  return static_cast<std::int32_t>(pieces_.size()) - 1;
}

std::string StoryVocabulary::render(std::int32_t token, const Context& context) const {
  const auto& [kind, text] = pieces_[static_cast<std::size_t>(token)];
  const char* space = context.no_space ? "" : " ";
  switch (kind) {
    case Kind::end: return context.empty ? "" : text;
    case Kind::word: {
      const bool goes_on = context.quote_closed && (text == "said" || text == "asked" || text == "cried");
      return space + (context.sentence_start && !goes_on ? with_first(text, std::toupper) : text);
    }
    case Kind::opening_quote: return space + text;
    default: return text;
  }
}

void StoryVocabulary::advance(Context& context, std::int32_t token) const {
  const auto& [kind, text] = pieces_[static_cast<std::size_t>(token)];
  if (kind == Kind::closing_quote) {  // what stands before it decides: "Run!" She ran. / "Run," she said.
    context.no_space = false;
    context.quote_closed = true;
    return;
  }
  context.quote_closed = false;
  const bool line_start = kind == Kind::end || text == "\n";
  context.empty = context.empty && kind == Kind::end;
  context.no_space = line_start || kind == Kind::opening_quote;
  context.sentence_start = context.no_space || kind == Kind::stop;
}

std::pair<std::int32_t, std::size_t> StoryVocabulary::match(std::string_view text, const Context& context) const {
  const auto reads = [&](std::int32_t token) {
    const std::string rendered = render(token, context);
    return !rendered.empty() && text.starts_with(rendered) ? rendered.size() : 0;
  };
  const std::string_view word = leading_word(text.substr(text[0] == ' ' ? 1 : 0));
  // "Lily's" is a name and an ending unless it is a word of its own, as "let's" is.
  const std::string_view stem = word.ends_with("'s") ? word.substr(0, word.size() - 2) : word;
  for (const std::string_view candidate : {word, stem}) {
    for (const std::string& spelling : {std::string(candidate), with_first(candidate, std::tolower)}) {
      const auto found = words_.find(spelling);
      if (found == words_.end()) continue;
      if (const std::size_t length = reads(found->second)) return {found->second, length};
    }
  }
  std::vector<std::int32_t> others = {end_of_story, opening_quote_, closing_quote_, possessive_};
  others.insert(others.end(), marks_.begin(), marks_.end());
  for (const std::int32_t token : others) {
    if (const std::size_t length = reads(token)) return {token, length};
  }
  return {static_cast<unsigned char>(text[0]), 1};
}

text::Encoded StoryVocabulary::encode(std::string_view text) const {
  text::Encoded encoded{.tokens = {end_of_story}, .spans = {{0, 0}}};
  Context context;
  for (std::size_t begin = 0; begin < text.size();) {
    const auto [token, length] = match(text.substr(begin), context);
    encoded.tokens.push_back(token);
    encoded.spans.push_back({static_cast<std::uint32_t>(begin), static_cast<std::uint32_t>(begin + length)});
    advance(context, token);
    begin += length;
  }
  return encoded;
}

std::string StoryVocabulary::decode(std::span<const std::int32_t> tokens) const {
  std::string text;
  Context context;
  for (const std::int32_t token : tokens) {
    if (token < 0 || token >= size()) {  // a model's vocabulary may be larger than ours; its untrained tokens say nothing
      text += '?';
      continue;
    }
    text += render(token, context);
    advance(context, token);
  }
  return base::valid_utf8(text);
}

std::int32_t StoryVocabulary::word(std::string_view word) const {
  const auto found = words_.find(std::string(word));
  base::check(found != words_.end(), fmt::format("the stories' vocabulary has the word '{}'", word));
  return found->second;
}

std::int32_t StoryVocabulary::mark(char mark) const {
  for (const std::int32_t token : marks_) {
    if (pieces_[static_cast<std::size_t>(token)].text[0] == mark) return token;
  }
  throw base::Bug(fmt::format("the stories' vocabulary has no mark '{}'", mark));
}

bool StoryVocabulary::starts_with_vowel(std::int32_t token) const {
  const std::string& text = pieces_[static_cast<std::size_t>(token)].text;
  return std::string_view("aeiouAEIOU").find(text[0]) != std::string_view::npos;
}

}  // namespace lockstep::corpus
