// Collates samples of a corpus: padded to one length, or packed rows with their records' starts.
#include "rank/data/text_source.h"

#include <ATen/ops/empty.h>

#include <algorithm>

#include "base/hash/draws.h"

namespace lockstep::data {
namespace {

constexpr std::int64_t time_step = 64;  // batches are as long as a multiple of this

// Where records start in the flattened batch, and where it ends. Padding is a record of its own, which nobody else sees.
at::Tensor starts_of(const Corpus& corpus, std::span<const std::int64_t> samples, std::int64_t time) {
  std::vector<std::int32_t> starts;
  for (std::size_t row = 0; row < samples.size(); ++row) {
    const auto offset = static_cast<std::int32_t>(static_cast<std::int64_t>(row) * time);
    if (samples[row] < 0) {
      starts.push_back(offset);
      continue;
    }
    for (const std::int32_t start : corpus.starts(samples[row])) starts.push_back(offset + start);
    if (const std::int64_t length = corpus.length(samples[row]); length < time)
      starts.push_back(offset + static_cast<std::int32_t>(length));
  }
  starts.push_back(static_cast<std::int32_t>(static_cast<std::int64_t>(samples.size()) * time));
  const at::Tensor result = at::empty({static_cast<std::int64_t>(starts.size())}, at::kInt);
  std::copy(starts.begin(), starts.end(), result.mutable_data_ptr<std::int32_t>());
  return result;
}

class TextSource final : public Source {
 public:
  TextSource(std::shared_ptr<const Corpus> corpus, std::int64_t seed, bool keys) : corpus_(std::move(corpus)), seed_(seed), keys_(keys) {}
  std::int64_t samples() const override { return corpus_->samples(); }
  std::int64_t sample_size() const override { return corpus_->seq_len(); }
  bool fixed_shapes() const override { return corpus_->fixed_length(); }
  std::string fingerprint() const override { return corpus_->fingerprint(); }
  Batch make(std::span<const std::int64_t> samples, std::int64_t epoch, bool pinned) const override;

 private:
  std::int64_t time_of(std::span<const std::int64_t> samples) const;
  at::Tensor keys_of(std::span<const std::int64_t> samples, std::int64_t epoch, bool pinned) const;

  std::shared_ptr<const Corpus> corpus_;
  std::int64_t seed_;
  bool keys_;
};

std::int64_t TextSource::time_of(std::span<const std::int64_t> samples) const {
  if (corpus_->packed() || corpus_->fixed_length()) return corpus_->seq_len();
  std::int64_t longest = 1;
  for (const std::int64_t sample : samples) {
    if (sample >= 0) longest = std::max(longest, corpus_->length(sample));
  }
  return std::min((longest + time_step - 1) / time_step * time_step, corpus_->seq_len());
}

// A key of its own for every sample of every epoch, whichever rank draws from it.
at::Tensor TextSource::keys_of(std::span<const std::int64_t> samples, std::int64_t epoch, bool pinned) const {
  at::Tensor keys = at::empty({static_cast<std::int64_t>(samples.size())}, at::TensorOptions().dtype(at::kLong).pinned_memory(pinned));
  const std::uint64_t key = base::mix(static_cast<std::uint64_t>(seed_), static_cast<std::uint64_t>(epoch));
  for (std::size_t row = 0; row < samples.size(); ++row)
    keys.data_ptr<std::int64_t>()[row] = static_cast<std::int64_t>(base::mix(key, static_cast<std::uint64_t>(samples[row])));
  return keys;
}

Batch TextSource::make(std::span<const std::int64_t> samples, std::int64_t epoch, bool pinned) const {
  const auto rows = static_cast<std::int64_t>(samples.size());
  const std::int64_t time = time_of(samples);
  const auto kind = at::TensorOptions().dtype(at::kLong).pinned_memory(pinned);
  TextFields fields{.tokens = at::empty({rows, time}, kind), .targets = at::empty({rows, time}, kind)};
  std::int64_t trained = 0;
  for (std::int64_t row = 0; row < rows; ++row) {
    const std::span tokens(fields.tokens.data_ptr<std::int64_t>() + row * time, static_cast<std::size_t>(time));
    const std::span targets(fields.targets.data_ptr<std::int64_t>() + row * time, static_cast<std::size_t>(time));
    const std::int64_t sample = samples[static_cast<std::size_t>(row)];
    const auto length = static_cast<std::size_t>(sample < 0 ? 0 : corpus_->length(sample));
    if (sample >= 0) corpus_->read(sample, tokens.first(length), targets.first(length));
    std::fill(tokens.begin() + static_cast<std::ptrdiff_t>(length), tokens.end(), 0);
    std::fill(targets.begin() + static_cast<std::ptrdiff_t>(length), targets.end(), untrained);
    trained += time - std::count(targets.begin(), targets.end(), untrained);
  }
  if (corpus_->packed()) fields.starts = starts_of(*corpus_, samples, time);
  if (keys_) fields.keys = keys_of(samples, epoch, pinned);
  Batch batch = batch_of(fields, trained);
  batch.samples.assign(samples.begin(), samples.end());
  return batch;
}

}  // namespace

std::shared_ptr<const Source> text_source(std::shared_ptr<const Corpus> corpus, std::int64_t seed, bool keys) {
  return std::make_shared<TextSource>(std::move(corpus), seed, keys);
}

}  // namespace lockstep::data
