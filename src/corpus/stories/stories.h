// The built-in corpus: simple English stories, made from lists and plots, so that a first run needs no download.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "text/language.h"

namespace lockstep::corpus {

// Words, marks and bytes. Spaces and the capitals at the start of a sentence are not stored but follow from what stands before, so
// "The" and "the" are one token. decode(encode(text)) == text for every UTF-8 text: what is no word is spelled in bytes.
class StoryVocabulary {
 public:
  static constexpr std::int32_t end_of_story = 256;  // reads as an empty line

  // Words with a capital ("Lily", "I") keep it everywhere. Order and duplicates of `words` do not matter.
  explicit StoryVocabulary(std::vector<std::string> words);

  std::int64_t size() const { return static_cast<std::int64_t>(pieces_.size()); }
  // Starts with end_of_story, as every story does.
  text::Encoded encode(std::string_view text) const;
  std::string decode(std::span<const std::int32_t> tokens) const;

  std::int32_t word(std::string_view word) const;  // throws Bug for a word that is not in the list
  std::int32_t mark(char mark) const;              // one of . , ! ?
  std::int32_t opening_quote() const { return opening_quote_; }
  std::int32_t closing_quote() const { return closing_quote_; }
  std::int32_t possessive() const { return possessive_; }
  bool starts_with_vowel(std::int32_t token) const;

 private:
  enum class Kind : std::uint8_t { byte, end, word, stop, comma, suffix, opening_quote, closing_quote };
  struct Piece {
    Kind kind;
    std::string text;
  };
  // What the text so far asks of the next token.
  struct Context {
    bool empty = true;           // nothing written yet
    bool no_space = true;        // a word needs no space before it
    bool sentence_start = true;  // a word gets a capital
    bool quote_closed = false;   // except "said" and its like, which go on with the sentence: "Help!" cried Lily.
  };
  std::string render(std::int32_t token, const Context& context) const;
  void advance(Context& context, std::int32_t token) const;
  // The token that reads as the start of `text`, and how many bytes of it.
  std::pair<std::int32_t, std::size_t> match(std::string_view text, const Context& context) const;
  std::int32_t add(Kind kind, std::string text);

  std::vector<Piece> pieces_;
  std::unordered_map<std::string, std::int32_t> words_;
  std::vector<std::int32_t> marks_;
  std::int32_t opening_quote_ = 0, closing_quote_ = 0, possessive_ = 0;
};

// How it reads, for prompts and samples.
std::shared_ptr<const text::Language> story_language(std::shared_ptr<const StoryVocabulary> words);

// Makes stories; thread-safe. Story `number` is a function of (seed, number) alone.
class StoryMaker {
 public:
  struct Parts;
  StoryMaker();
  ~StoryMaker();
  std::shared_ptr<const StoryVocabulary> vocabulary() const;
  // Appends end_of_story and the story.
  void make(std::int64_t seed, std::int64_t number, std::vector<std::uint16_t>& tokens) const;

 private:
  std::unique_ptr<const Parts> parts_;
};

// `stories` stories one after the other and an end: 20,000 take about 0.1 s.
std::vector<std::uint16_t> make_stories(const StoryMaker& maker, std::int64_t stories, std::int64_t seed);

}  // namespace lockstep::corpus
