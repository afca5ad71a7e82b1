// From a corpus to this rank's micro-batches of global batch t. Knows of other ranks only Shard{index, count}.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "config/run_config.h"
#include "rank/data/batch.h"
#include "corpus/samples/order.h"

namespace lockstep::text {
class Language;
}

namespace lockstep::data {

struct Shard {
  std::int64_t index = 0;
  std::int64_t count = 1;
};

constexpr std::int64_t untrained = -100;  // a target that nothing is learned from

// Samples addressed by number, each of up to seq_len positions; reading is thread-safe.
class Corpus {
 public:
  virtual ~Corpus() = default;
  virtual std::int64_t samples() const = 0;
  virtual std::int64_t seq_len() const = 0;
  // Positions of one sample.
  virtual std::int64_t length(std::int64_t /*sample*/) const { return seq_len(); }
  // tokens, targets: length(sample) of each. A target is the token that follows, or `untrained`.
  virtual void read(std::int64_t sample, std::span<std::int64_t> tokens, std::span<std::int64_t> targets) const = 0;
  // Every sample has seq_len positions.
  virtual bool fixed_length() const { return true; }
  // Samples are rows of several records, all rows as long as seq_len.
  virtual bool packed() const { return false; }
  // Positions of a sample where its records start; the first is 0.
  virtual std::vector<std::int32_t> starts(std::int64_t /*sample*/) const { return {0}; }
  // Equal for equal content: checkpoints keep it, so that a resume on other data is noticed.
  virtual std::string fingerprint() const = 0;
};

// The training and validation parts of one data source, and how its tokens read as text.
struct Dataset {
  std::shared_ptr<const Corpus> training;
  std::shared_ptr<const Corpus> validation;  // null: none
  std::shared_ptr<const text::Language> language;
  std::string description;  // "built-in stories, 1.2M tokens"
};
// Throws UserError(ExitCode::data) that names the file and the fix; also when a token is outside the model's vocabulary.
Dataset open_dataset(const config::DataConfig& data, const config::ModelConfig& model, std::int64_t seed);

// Position -> sample within an epoch.
using corpus::Order;

// Where the next global batch starts: the whole state of a loader. Positions count samples over all epochs.
struct Position {
  std::int64_t epoch = 0;
  std::int64_t sample = 0;  // within the epoch, in order
};

// All micro-batches of one step for this rank, ready in order. Not collective: every rank computes its own slice.
// The last batch of an epoch may be short: it is filled with samples of weight 0.
class Loader {
 public:
  struct Options {
    std::int64_t batch_size = 1;
    std::int64_t gradient_accumulation = 1;
    Shard shard = {};
    std::int64_t seed = 0;
    bool shuffle = true;
    std::int64_t prefetch = 2;
    std::int64_t workers = 1;
    bool pin_memory = false;
    bool repeat = true;  // false: next() gives nothing after one epoch (evaluation)
  };
  Loader(std::shared_ptr<const Source> source, const Options& options, Position start);
  ~Loader();

  // The micro-batches of the next step; empty at the end where repeat is false. Rethrows a reader thread's error.
  std::vector<Batch> next();
  // Where the batch after the last next() starts.
  Position position() const;
  std::int64_t steps_per_epoch() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace lockstep::data
