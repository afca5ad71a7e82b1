// Tokenised records as corpora: one record a sample, or packs of them.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "rank/data/data.h"
#include "rank/data/tokens.h"
#include "corpus/prepare/cache.h"
#include "corpus/samples/split.h"

namespace lockstep::data {

// Some of a cache's samples. What a sample trains is what its mask says; the token after a prompt is predicted from the prompt.
class RecordCorpus final : public Corpus {
 public:
  // `chosen`: numbers of the cache's samples, in order. `which`: what they are, for the fingerprint ("training").
  RecordCorpus(std::shared_ptr<const corpus::Cache> cache, std::vector<std::uint32_t> chosen, std::int64_t seq_len, std::string which);

  std::int64_t samples() const override { return static_cast<std::int64_t>(chosen_.size()); }
  std::int64_t seq_len() const override { return seq_len_; }
  std::int64_t length(std::int64_t sample) const override;
  bool fixed_length() const override { return false; }
  void read(std::int64_t sample, std::span<std::int64_t> tokens, std::span<std::int64_t> targets) const override;
  std::string fingerprint() const override;

 private:
  std::shared_ptr<const corpus::Cache> cache_;
  std::vector<std::uint32_t> chosen_;
  std::int64_t seq_len_;
  std::string which_;
};

// Rows of seq_len positions, each filled with records by first-fit. Which records share a row is drawn from the seed once, so that
// every epoch has as many rows; their order is the global order's, epoch by epoch.
class PackedCorpus final : public Corpus {
 public:
  // shuffle: records of a row come from anywhere, the longest first; else from nearby, in the order of the file.
  PackedCorpus(std::shared_ptr<const Corpus> records, std::int64_t seed, bool shuffle);

  std::int64_t samples() const override { return static_cast<std::int64_t>(rows_.size()); }
  std::int64_t seq_len() const override { return records_->seq_len(); }
  std::int64_t length(std::int64_t sample) const override;
  bool fixed_length() const override { return false; }
  void read(std::int64_t sample, std::span<std::int64_t> tokens, std::span<std::int64_t> targets) const override;
  bool packed() const override { return true; }
  std::vector<std::int32_t> starts(std::int64_t sample) const override;
  std::string fingerprint() const override { return "packed " + records_->fingerprint(); }
  double fill() const;  // share of positions that hold tokens

 private:
  const std::vector<std::uint32_t>& row(std::int64_t sample) const;

  std::shared_ptr<const Corpus> records_;
  std::vector<std::vector<std::uint32_t>> rows_;
};

// All tokens of a cache as one row.
std::shared_ptr<const Tokens> cached_tokens(std::shared_ptr<const corpus::Cache> cache);

// Which samples are for training and which are held back.
using corpus::Split;
using corpus::split;

}  // namespace lockstep::data
