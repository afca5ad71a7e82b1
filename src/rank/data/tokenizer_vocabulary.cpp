// A model's own tokenizer as the vocabulary of samples and prompts.
#include "base/utf8.h"
#include "rank/data/vocabularies.h"
#include "text/tokenizer.h"

namespace lockstep::data {
namespace {

class TokenizerVocabulary final : public Vocabulary {
 public:
  TokenizerVocabulary(const std::filesystem::path& where, std::int64_t vocab_size) : tokenizer_(where), vocab_size_(vocab_size) {
    const std::filesystem::path folder = tokenizer_.file().parent_path();
    eos_ = text::read_tokenizer_files(folder.empty() ? "." : folder).eos;
  }
  std::int64_t size() const override { return std::min(tokenizer_.get().size(), vocab_size_); }
  std::vector<std::int32_t> encode(std::string_view text) const override {
    std::vector<std::int32_t> tokens = tokenizer_.get().encode(text, text::SpecialTokens::add);
    if (const auto last = end(); last && tokens.size() > 1 && tokens.back() == *last) tokens.pop_back();  // a prompt goes on
    std::erase_if(tokens, [&](std::int32_t token) { return token >= vocab_size_; });
    return tokens;
  }
  std::string decode(std::span<const std::int32_t> tokens) const override {
    return base::valid_utf8(tokenizer_.get().decode(tokens, /*skip_special=*/true));
  }
  std::optional<std::int32_t> end() const override { return eos_.empty() ? std::nullopt : tokenizer_.get().find(eos_); }

 private:
  text::LazyTokenizer tokenizer_;
  std::int64_t vocab_size_;
  std::string eos_;
};

}  // namespace

std::shared_ptr<const Vocabulary> tokenizer_vocabulary(const std::filesystem::path& folder_or_file, std::int64_t vocab_size) {
  return std::make_shared<TokenizerVocabulary>(folder_or_file, vocab_size);
}

}  // namespace lockstep::data
