// Vocabularies: a tokenizer's, and those that need no file: bytes, bare numbers, and the words of the built-in stories.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "rank/data/data.h"

namespace lockstep::data {

// Text is its bytes.
std::shared_ptr<const Vocabulary> byte_vocabulary();
// Token files come without a tokenizer: text is numbers ("17 4 99"); other text is taken as bytes.
std::shared_ptr<const Vocabulary> number_vocabulary(std::int64_t size);

// A tokenizer.json. Special tokens are left out of what is read back; numbers past what the model has are none of it.
std::shared_ptr<const Vocabulary> tokenizer_vocabulary(const std::filesystem::path& folder_or_file, std::int64_t vocab_size);

// `text` with every byte that is not UTF-8 replaced by U+FFFD: what a model writes must fit into JSON.
std::string valid_utf8(std::string_view text);

// Words, marks and bytes. Spaces and the capitals at the start of a sentence are not stored but follow from what stands before, so
// "The" and "the" are one token. decode(encode(text)) == text for every UTF-8 text: what is no word is spelled in bytes.
class StoryVocabulary final : public Vocabulary {
 public:
  static constexpr std::int32_t end_of_story = 256;  // reads as an empty line

  // Words with a capital ("Lily", "I") keep it everywhere. Order and duplicates of `words` do not matter.
  explicit StoryVocabulary(std::vector<std::string> words);

  std::int64_t size() const override { return static_cast<std::int64_t>(pieces_.size()); }
  // Starts with end_of_story, as every story does.
  std::vector<std::int32_t> encode(std::string_view text) const override;
  std::string decode(std::span<const std::int32_t> tokens) const override;
  std::optional<std::int32_t> end() const override { return end_of_story; }

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

}  // namespace lockstep::data
