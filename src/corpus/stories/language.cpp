// The words of the built-in stories as a language.
#include <utility>

#include "corpus/stories/stories.h"
#include "text/language.h"

namespace lockstep::corpus {
namespace {

class Stories final : public text::Language {
 public:
  explicit Stories(std::shared_ptr<const StoryVocabulary> words) : words_(std::move(words)) {}
  text::Encoded encode(std::string_view text, text::SpecialTokens) const override { return words_->encode(text); }
  std::string decode(std::span<const std::int32_t> tokens) const override { return words_->decode(tokens); }
  std::vector<std::int32_t> encode_prompt(std::string_view text) const override { return words_->encode(text).tokens; }
  std::string spell(std::int32_t token) const override { return words_->decode({&token, 1}); }
  std::int64_t size() const override { return words_->size(); }
  std::optional<std::int32_t> end() const override { return StoryVocabulary::end_of_story; }
  std::string name() const override { return "the built-in stories"; }
  std::string identity() const override { return "built-in stories"; }

 private:
  std::shared_ptr<const StoryVocabulary> words_;
};

}  // namespace

std::shared_ptr<const text::Language> story_language(std::shared_ptr<const StoryVocabulary> words) {
  return std::make_shared<Stories>(std::move(words));
}

}  // namespace lockstep::corpus
