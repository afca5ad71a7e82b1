// From the data section of a config to a training and a validation corpus.
#include <algorithm>
#include <filesystem>
#include <numeric>

#include "base/error.h"
#include "base/text.h"
#include "config/config.h"
#include "rank/data/data.h"
#include "rank/data/record_corpus.h"
#include "rank/data/stories.h"
#include "rank/data/tokens.h"
#include "corpus/prepare/prepare.h"

namespace lockstep::data {
namespace {

// Samples cut from one row of tokens without overlap. The last token of a sample, seen there only as a target, starts the next one.
class Windows final : public Corpus {
 public:
  Windows(std::shared_ptr<const Tokens> tokens, std::int64_t seq_len, std::int64_t first, std::int64_t samples)
      : tokens_(std::move(tokens)), seq_len_(seq_len), first_(first), samples_(samples) {}

  std::int64_t samples() const override { return samples_; }
  std::int64_t seq_len() const override { return seq_len_; }
  void read(std::int64_t sample, std::span<std::int64_t> tokens, std::span<std::int64_t> targets) const override {
    base::check(sample >= 0 && sample < samples_, "a sample lies within its corpus");
    base::check(static_cast<std::int64_t>(tokens.size()) == seq_len_ && targets.size() == tokens.size(), "a sample has seq_len positions");
    const std::int64_t first = (first_ + sample) * seq_len_;
    tokens_->read(first, tokens);
    std::copy(tokens.begin() + 1, tokens.end(), targets.begin());
    tokens_->read(first + seq_len_, targets.last(1));
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

// A source of tokens.
struct OpenedTokens {
  std::shared_ptr<const Tokens> tokens;
  std::string name;
};

// Errors of tokens that the model has no rows for, before one of them is looked up.
void check_vocabulary(const corpus::Cache& cache, std::string_view source, const std::string& tokenizer, std::int64_t vocab_size) {
  if (cache.largest_token() < vocab_size) return;
  throw base::data_error("data",
                         "{} has the token {} of {}, but model.vocab_size={}. Use the model's own tokenizer, or raise model.vocab_size.",
                         source, cache.largest_token(), tokenizer, vocab_size);
}

OpenedTokens open_tokenized_text(const config::DataConfig& data, const config::ModelConfig& model, std::int64_t seq_len) {
  const std::string tokenizer = corpus::tokenizer_path(data, model);
  auto cache = corpus::prepare(data, seq_len, corpus::language_of_records(data, model)).cache;
  check_vocabulary(*cache, data.path, tokenizer, model.vocab_size);
  return {cached_tokens(std::move(cache)), data.path};
}

OpenedTokens open_file(const config::DataConfig& data, const config::ModelConfig& model, std::int64_t seq_len) {
  const config::DataKind kind = corpus::kind_of(data);
  if (data.path.empty()) throw base::data_error("data", "data.kind={} needs a file. Name it with --data.", config::name_of(kind));
  if (kind == config::DataKind::bin) return {open_bin(data.path, data.token_type, model.vocab_size), data.path};
  if (!corpus::tokenizer_path(data, model).empty()) return open_tokenized_text(data, model, seq_len);
  return {open_text(data.path, model.vocab_size), data.path};
}

OpenedTokens open_stories(std::int64_t stories, std::int64_t vocab_size, std::int64_t seed) {
  const corpus::StoryMaker maker;
  if (maker.vocabulary()->size() > vocab_size) {
    throw base::data_error("data",
                           "the built-in stories have {} tokens, model.vocab_size={} is too small for them. Set model.vocab_size=1024, "
                           "or train on your own data with --data.",
                           maker.vocabulary()->size(), vocab_size);
  }
  return {story_tokens(maker, stories, seed), "built-in stories"};
}

OpenedTokens open_source(const config::DataConfig& data, const config::ModelConfig& model, std::int64_t seq_len, std::int64_t seed) {
  switch (corpus::kind_of(data)) {
    case config::DataKind::stories: return open_stories(data.stories, model.vocab_size, seed);
    case config::DataKind::random: return {random_tokens(data.random_tokens, model.vocab_size, seed), "random tokens"};
    default: return open_file(data, model, seq_len);
  }
}

// Long rows of tokens, cut into samples.
Dataset open_tokens(const config::DataConfig& data, const config::ModelConfig& model, std::int64_t seq_len, std::int64_t seed) {
  if (data.packing) {
    throw base::data_error(
        "data",
        "data.packing fills rows with several records, but data of kind {} has none: its samples are full already. Remove --packing.",
        config::name_of(corpus::kind_of(data)));
  }
  const OpenedTokens source = open_source(data, model, seq_len, seed);
  const std::int64_t samples = count_samples(*source.tokens, seq_len, source.name);

  Dataset dataset;
  std::int64_t held_out = 0;
  if (!data.validation_path.empty()) {
    const OpenedTokens validation = open_file(corpus::validation_of(data), model, seq_len);
    const std::int64_t count = count_samples(*validation.tokens, seq_len, validation.name);
    dataset.validation = std::make_shared<Windows>(validation.tokens, seq_len, 0, count);
  } else {
    held_out = corpus::held_back(samples, data.validation_fraction);
    if (held_out > 0) dataset.validation = std::make_shared<Windows>(source.tokens, seq_len, samples - held_out, held_out);
  }
  dataset.training = std::make_shared<Windows>(source.tokens, seq_len, 0, samples - held_out);
  const auto validation_samples = dataset.validation ? dataset.validation->samples() : 0;
  dataset.description =
      fmt::format("{}, {} tokens: {} samples of {}, {} for validation", source.name,
                  base::human_count(static_cast<double>(source.tokens->count())), samples - held_out, seq_len, validation_samples);
  return dataset;
}

std::vector<std::uint32_t> all_of(const corpus::Cache& cache) {
  std::vector<std::uint32_t> numbers(static_cast<std::size_t>(cache.samples()));
  std::iota(numbers.begin(), numbers.end(), 0u);
  return numbers;
}

// Records, each a sample with a mask of its own, or packed.
Dataset open_records(const config::DataConfig& data, const config::ModelConfig& model, std::int64_t seq_len, std::int64_t seed) {
  if (data.path.empty()) throw base::data_error("data", "data.kind=records needs a file. Name it with --data.");
  const std::string tokenizer = corpus::tokenizer_path(data, model);
  const auto language = corpus::language_of_records(data, model);
  const auto open = [&](const config::DataConfig& settings) {
    auto cache = corpus::prepare(settings, seq_len, language).cache;
    check_vocabulary(*cache, settings.path, tokenizer, model.vocab_size);
    return cache;
  };
  const auto corpus_of = [&](const std::shared_ptr<const corpus::Cache>& cache, std::vector<std::uint32_t> chosen,
                             const char* which) -> std::shared_ptr<const Corpus> {
    auto corpus = std::make_shared<RecordCorpus>(cache, std::move(chosen), seq_len, which);
    if (!data.packing) return corpus;
    return std::make_shared<PackedCorpus>(std::move(corpus), seed, data.shuffle);
  };

  const auto cache = open(data);
  Dataset dataset;
  if (!data.validation_path.empty()) {
    const auto other = open(corpus::validation_of(data));
    dataset.training = corpus_of(cache, all_of(*cache), "training");
    dataset.validation = corpus_of(other, all_of(*other), "validation");
  } else {
    Split parts = split(*cache, data.validation_fraction);
    dataset.training = corpus_of(cache, std::move(parts.training), "training");
    if (!parts.validation.empty()) dataset.validation = corpus_of(cache, std::move(parts.validation), "validation");
  }
  const auto* packed = dynamic_cast<const PackedCorpus*>(dataset.training.get());
  dataset.description = fmt::format("{}, {} format, {}: {} {}, {} for validation", data.path, cache->counts().format,
                                    cache->counts().summary(), dataset.training->samples(),
                                    packed ? fmt::format("packs of {} ({:.1f}% full)", seq_len, 100 * packed->fill()) : "samples",
                                    dataset.validation ? dataset.validation->samples() : 0);
  return dataset;
}

}  // namespace

Dataset open_dataset(const config::DataConfig& data, const config::ModelConfig& model, std::int64_t seed) {
  const std::int64_t seq_len = data.seq_len > 0 ? data.seq_len : model.max_seq_len;
  const bool of_records = corpus::kind_of(data) == config::DataKind::records;
  Dataset dataset = (of_records ? open_records : open_tokens)(data, model, seq_len, seed);
  dataset.language = corpus::language_of(data, model);
  return dataset;
}

}  // namespace lockstep::data
