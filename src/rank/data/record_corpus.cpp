// Reads samples out of a mapped cache; packs them.
#include "rank/data/record_corpus.h"

#include <algorithm>

#include "base/error.h"
#include "corpus/samples/split.h"

namespace lockstep::data {
namespace {

class CachedTokens final : public Tokens {
 public:
  explicit CachedTokens(std::shared_ptr<const corpus::Cache> cache) : cache_(std::move(cache)) {}
  std::int64_t count() const override { return static_cast<std::int64_t>(cache_->tokens().size()); }
  void read(std::int64_t first, std::span<std::int64_t> tokens) const override {
    base::check(first >= 0 && first + static_cast<std::int64_t>(tokens.size()) <= count(), "tokens are read within their cache");
    std::copy_n(cache_->tokens().begin() + first, tokens.size(), tokens.begin());
  }
  std::string identity() const override { return "tokenized text " + cache_->key(); }

 private:
  std::shared_ptr<const corpus::Cache> cache_;
};

}  // namespace

RecordCorpus::RecordCorpus(std::shared_ptr<const corpus::Cache> cache, std::vector<std::uint32_t> chosen, std::int64_t seq_len,
                           std::string which)
    : cache_(std::move(cache)), chosen_(std::move(chosen)), seq_len_(seq_len), which_(std::move(which)) {}

std::int64_t RecordCorpus::length(std::int64_t sample) const {
  base::check(sample >= 0 && sample < samples(), "a sample lies within its corpus");
  return static_cast<std::int64_t>(cache_->tokens(chosen_[static_cast<std::size_t>(sample)]).size()) - 1;
}

void RecordCorpus::read(std::int64_t sample, std::span<std::int64_t> tokens, std::span<std::int64_t> targets) const {
  const std::int64_t number = chosen_.at(static_cast<std::size_t>(sample));
  const auto stored = cache_->tokens(number);
  base::check(tokens.size() + 1 == stored.size() && targets.size() == tokens.size(), "a sample is read as long as it is");
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    tokens[i] = stored[i];
    targets[i] = cache_->trained(number, i + 1) ? static_cast<std::int64_t>(stored[i + 1]) : untrained;
  }
}

std::string RecordCorpus::fingerprint() const {
  return fmt::format("records {}, {} {} of {}", cache_->key(), which_, samples(), cache_->samples());
}

PackedCorpus::PackedCorpus(std::shared_ptr<const Corpus> records, std::int64_t seed, bool shuffle)
    : records_(std::move(records)),
      rows_(corpus::pack_rows(
          records_->samples(), [this](std::int64_t sample) { return records_->length(sample); }, records_->seq_len(), seed, shuffle)) {}

const std::vector<std::uint32_t>& PackedCorpus::row(std::int64_t sample) const { return rows_.at(static_cast<std::size_t>(sample)); }

std::int64_t PackedCorpus::length(std::int64_t sample) const {
  std::int64_t length = 0;
  for (const std::uint32_t record : row(sample)) length += records_->length(record);
  return length;
}

void PackedCorpus::read(std::int64_t sample, std::span<std::int64_t> tokens, std::span<std::int64_t> targets) const {
  std::size_t at = 0;
  for (const std::uint32_t record : row(sample)) {
    const auto length = static_cast<std::size_t>(records_->length(record));
    records_->read(record, tokens.subspan(at, length), targets.subspan(at, length));
    at += length;
  }
}

std::vector<std::int32_t> PackedCorpus::starts(std::int64_t sample) const {
  std::vector<std::int32_t> starts;
  std::int64_t at = 0;
  for (const std::uint32_t record : row(sample)) {
    starts.push_back(static_cast<std::int32_t>(at));
    at += records_->length(record);
  }
  return starts;
}

double PackedCorpus::fill() const {
  std::int64_t held = 0;
  for (std::int64_t i = 0; i < samples(); ++i) held += length(i);
  return static_cast<double>(held) / static_cast<double>(samples() * seq_len());
}

std::shared_ptr<const Tokens> cached_tokens(std::shared_ptr<const corpus::Cache> cache) {
  return std::make_shared<CachedTokens>(std::move(cache));
}

}  // namespace lockstep::data
