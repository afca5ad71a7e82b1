// A model's own tokenizer as the vocabulary of samples and prompts.
#include "rank/data/vocabularies.h"
#include "text/tokenizer.h"

namespace lockstep::data {
namespace {

class TokenizerVocabulary final : public Vocabulary {
 public:
  TokenizerVocabulary(const std::filesystem::path& where, std::int64_t vocab_size)
      : tokenizer_(text::Tokenizer::open(where)), size_(std::min(tokenizer_->size(), vocab_size)) {
    const std::filesystem::path folder = std::filesystem::is_directory(where) ? where : where.parent_path();
    const auto files = text::read_tokenizer_files(folder.empty() ? "." : folder, *tokenizer_);
    if (!files.eos.empty()) end_ = tokenizer_->find(files.eos);
  }
  std::int64_t size() const override { return size_; }
  std::vector<std::int32_t> encode(std::string_view text) const override {
    std::vector<std::int32_t> tokens = tokenizer_->encode(text, text::SpecialTokens::add);
    if (end_ && tokens.size() > 1 && tokens.back() == *end_) tokens.pop_back();  // a prompt goes on
    std::erase_if(tokens, [&](std::int32_t token) { return token >= size_; });
    return tokens;
  }
  std::string decode(std::span<const std::int32_t> tokens) const override {
    return valid_utf8(tokenizer_->decode(tokens, /*skip_special=*/true));
  }
  std::optional<std::int32_t> end() const override { return end_; }

 private:
  std::shared_ptr<const text::Tokenizer> tokenizer_;
  std::int64_t size_;
  std::optional<std::int32_t> end_;
};

}  // namespace

std::shared_ptr<const Vocabulary> tokenizer_vocabulary(const std::filesystem::path& folder_or_file, std::int64_t vocab_size) {
  return std::make_shared<TokenizerVocabulary>(folder_or_file, vocab_size);
}

}  // namespace lockstep::data
