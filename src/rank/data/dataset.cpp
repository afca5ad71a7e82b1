// From the data section of a config to a training and a validation corpus.
#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/text.h"
#include "rank/data/data.h"
#include "rank/data/stories.h"
#include "rank/data/tokens.h"
#include "rank/data/vocabularies.h"

namespace lockstep::data {
namespace {

// Samples cut from one row of tokens without overlap. The last token of a sample, seen there only as a target, starts the next one.
class Windows final : public Corpus {
 public:
  Windows(std::shared_ptr<const Tokens> tokens, std::int64_t seq_len, std::int64_t first, std::int64_t samples)
      : tokens_(std::move(tokens)), seq_len_(seq_len), first_(first), samples_(samples) {}

  std::int64_t samples() const override { return samples_; }
  std::int64_t seq_len() const override { return seq_len_; }
  void read(std::int64_t sample, std::span<std::int64_t> tokens) const override {
    base::check(sample >= 0 && sample < samples_, "a sample lies within its corpus");
    base::check(static_cast<std::int64_t>(tokens.size()) == seq_len_ + 1, "a sample has seq_len + 1 tokens");
    tokens_->read((first_ + sample) * seq_len_, tokens);
  }
  std::string fingerprint() const override {
    return fmt::format("{}; {} tokens; samples {} to {} of {} tokens", tokens_->identity(), tokens_->count(), first_, first_ + samples_,
                       seq_len_);
  }

 private:
  std::shared_ptr<const Tokens> tokens_;
  std::int64_t seq_len_, first_, samples_;
};

std::int64_t count_samples(const Tokens& tokens, std::int64_t seq_len, std::string_view source) {
  const std::int64_t samples = tokens.count() < 1 ? 0 : (tokens.count() - 1) / seq_len;
  if (samples < 1) {
    throw base::data_error("data",
                           "{} has {} tokens, fewer than one sample needs: data.seq_len={} and the token after it make {}. "
                           "Use more data or a smaller data.seq_len.",
                           source, tokens.count(), seq_len, seq_len + 1);
  }
  return samples;
}

config::DataKind kind_of(const config::DataConfig& data) {
  if (data.kind != config::DataKind::automatic) return data.kind;
  if (data.path.empty()) return config::DataKind::stories;
  return base::lower(std::filesystem::path(data.path).extension().string()) == ".bin" ? config::DataKind::bin : config::DataKind::text;
}

// A source of tokens and how to read them.
struct Source {
  std::shared_ptr<const Tokens> tokens;
  std::shared_ptr<const Vocabulary> vocabulary;
  std::string name;
};

Source open_file(const std::string& path, config::DataKind kind, const config::DataConfig& data, std::int64_t vocab_size) {
  if (path.empty()) {
    throw base::data_error("data", "data.kind={} needs a file. Name it with --data.", kind == config::DataKind::bin ? "bin" : "text");
  }
  if (kind == config::DataKind::bin) return {open_bin(path, data.token_type, vocab_size), number_vocabulary(vocab_size), path};
  return {open_text(path, vocab_size), byte_vocabulary(), path};
}

Source open_stories(std::int64_t stories, std::int64_t vocab_size, std::int64_t seed) {
  const StoryMaker maker;
  if (maker.vocabulary()->size() > vocab_size) {
    throw base::data_error("data",
                           "the built-in stories have {} tokens, model.vocab_size={} is too small for them. Set model.vocab_size=1024, "
                           "or train on your own data with --data.",
                           maker.vocabulary()->size(), vocab_size);
  }
  return {story_tokens(maker, stories, seed), maker.vocabulary(), "built-in stories"};
}

Source open_source(const config::DataConfig& data, std::int64_t vocab_size, std::int64_t seed) {
  const config::DataKind kind = kind_of(data);
  switch (kind) {
    case config::DataKind::stories: return open_stories(data.stories, vocab_size, seed);
    case config::DataKind::random:
      return {random_tokens(data.random_tokens, vocab_size, seed), number_vocabulary(vocab_size), "random tokens"};
    default: return open_file(data.path, kind, data, vocab_size);
  }
}

}  // namespace

Dataset open_dataset(const config::DataConfig& data, const config::ModelConfig& model, std::int64_t seed) {
  const std::int64_t seq_len = data.seq_len > 0 ? data.seq_len : model.max_seq_len;
  const Source source = open_source(data, model.vocab_size, seed);
  const std::int64_t samples = count_samples(*source.tokens, seq_len, source.name);

  Dataset dataset;
  dataset.vocabulary = source.vocabulary;
  std::int64_t held_out = 0;
  if (!data.validation_path.empty()) {
    config::DataConfig other = data;
    other.path = data.validation_path;
    if (kind_of(data) == config::DataKind::stories || kind_of(data) == config::DataKind::random) other.kind = config::DataKind::automatic;
    const Source validation = open_file(other.path, kind_of(other), other, model.vocab_size);
    const std::int64_t count = count_samples(*validation.tokens, seq_len, validation.name);
    dataset.validation = std::make_shared<Windows>(validation.tokens, seq_len, 0, count);
  } else {
    held_out = std::min<std::int64_t>(samples - 1, std::llround(static_cast<double>(samples) * data.validation_fraction));
    if (held_out > 0) dataset.validation = std::make_shared<Windows>(source.tokens, seq_len, samples - held_out, held_out);
  }
  dataset.training = std::make_shared<Windows>(source.tokens, seq_len, 0, samples - held_out);
  const auto validation_samples = dataset.validation ? dataset.validation->samples() : 0;
  dataset.description =
      fmt::format("{}, {} tokens: {} samples of {}, {} for validation", source.name,
                  base::human_count(static_cast<double>(source.tokens->count())), samples - held_out, seq_len, validation_samples);
  return dataset;
}

}  // namespace lockstep::data
