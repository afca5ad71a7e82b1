// Reader threads that keep a ring of micro-batches filled, in the global order.
#include <algorithm>
#include <exception>
#include <limits>
#include <thread>
#include <utility>

#include <ATen/Context.h>
#include <ATen/ops/empty.h>

#include "base/hash/draws.h"
#include "base/error.h"
#include "base/mutex.h"
#include "rank/data/data.h"

namespace lockstep::data {
namespace {

constexpr std::int64_t time_step = 64;  // batches are as long as a multiple of this

// Where records start in the flattened batch, and where it ends. Padding is a record of its own, which nobody else sees.
at::Tensor starts_of(const Corpus& corpus, const std::vector<std::int64_t>& samples, std::int64_t time) {
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

}  // namespace

// A ticket numbers this rank's micro-batches from the start position on: ticket = step * gradient_accumulation + micro-step.
// Readers draw tickets in order and put what they made into slot ticket % slots; next() empties the slots in the same order.
struct Loader::Impl {
  std::shared_ptr<const Corpus> corpus;
  Options options;
  Position start;
  std::int64_t global_batch = 0;
  std::int64_t first_epoch_steps = 0;  // steps left in the epoch of `start`
  std::int64_t epoch_steps = 0;
  bool pinned = false;

  struct Slot {
    bool ready = false;
    Batch batch;
    std::exception_ptr error;
  };
  base::Mutex mutex;
  base::Condition room, ready;
  std::vector<Slot> slots LOCKSTEP_GUARDED_BY(mutex);
  std::int64_t next_ticket LOCKSTEP_GUARDED_BY(mutex) = 0;  // to be drawn by a reader
  std::int64_t taken LOCKSTEP_GUARDED_BY(mutex) = 0;        // handed out by next()
  bool stopping LOCKSTEP_GUARDED_BY(mutex) = false;
  std::int64_t step = 0;  // of next(); used by its caller's thread only
  std::vector<std::thread> readers;

  Impl(std::shared_ptr<const Corpus> corpus_, const Options& options_, Position start_);
  ~Impl();

  std::int64_t end_ticket() const {
    return options.repeat ? std::numeric_limits<std::int64_t>::max() : first_epoch_steps * options.gradient_accumulation;
  }
  Position position_of_step(std::int64_t number) const;
  std::vector<std::int64_t> samples_of(std::int64_t ticket) const;
  std::int64_t time_of(const std::vector<std::int64_t>& samples) const;
  at::Tensor keys_of(const std::vector<std::int64_t>& samples, std::int64_t epoch) const;
  Batch make(std::int64_t ticket) const;
  void read_ahead();
  Batch take();
};

Loader::Impl::Impl(std::shared_ptr<const Corpus> corpus_, const Options& options_, Position start_)
    : corpus(std::move(corpus_)), options(options_), start(start_) {
  const auto& [index, count] = options.shard;
  base::check(options.batch_size > 0 && options.gradient_accumulation > 0, "a batch holds something");
  base::check(count > 0 && index >= 0 && index < count, "a shard is one of its count");
  base::check(start.epoch >= 0 && start.sample >= 0, "a position is not negative");
  const std::int64_t samples = corpus->samples();
  if (start.sample > samples) {
    throw base::data_error("data",
                           "the data position to go on from is sample {} of epoch {}, but an epoch has {} samples: the data is not what "
                           "the checkpoint was trained on.",
                           start.sample, start.epoch, samples);
  }
  if (start.sample == samples) start = {start.epoch + 1, 0};
  global_batch = options.batch_size * options.gradient_accumulation * count;
  epoch_steps = (samples + global_batch - 1) / global_batch;
  first_epoch_steps = (samples - start.sample + global_batch - 1) / global_batch;
  pinned = options.pin_memory && at::globalContext().hasCUDA();

  const std::int64_t workers = std::min(options.workers, options.prefetch);
  slots.resize(static_cast<std::size_t>(std::max<std::int64_t>(1, options.prefetch)));
  for (std::int64_t i = 0; i < workers; ++i) readers.emplace_back([this] { read_ahead(); });
}

Loader::Impl::~Impl() {
  {
    const base::Lock lock(mutex);
    stopping = true;
  }
  room.notify_all();
  for (auto& reader : readers) reader.join();
}

Position Loader::Impl::position_of_step(std::int64_t number) const {
  if (number < first_epoch_steps) return {start.epoch, start.sample + number * global_batch};
  const std::int64_t later = number - first_epoch_steps;
  return {start.epoch + 1 + later / epoch_steps, later % epoch_steps * global_batch};
}

// Index i of the global batch belongs to micro-step i / (batch * ranks), to rank i / batch % ranks, to row i % batch.
std::vector<std::int64_t> Loader::Impl::samples_of(std::int64_t ticket) const {
  const Position position = position_of_step(ticket / options.gradient_accumulation);
  const std::int64_t micro_step = ticket % options.gradient_accumulation;
  const std::int64_t first = position.sample + (micro_step * options.shard.count + options.shard.index) * options.batch_size;
  const Order order(corpus->samples(), options.seed, position.epoch, options.shuffle);
  std::vector<std::int64_t> samples;
  for (std::int64_t at = first; at < first + options.batch_size; ++at) {
    samples.push_back(at < corpus->samples() ? order.sample_at(at) : -1);  // the epoch ends within this batch: weight 0
  }
  return samples;
}

std::int64_t Loader::Impl::time_of(const std::vector<std::int64_t>& samples) const {
  if (corpus->packed() || corpus->fixed_length()) return corpus->seq_len();
  std::int64_t longest = 1;
  for (const std::int64_t sample : samples) {
    if (sample >= 0) longest = std::max(longest, corpus->length(sample));
  }
  return std::min((longest + time_step - 1) / time_step * time_step, corpus->seq_len());
}

// A key of its own for every sample of every epoch, whichever rank draws from it.
at::Tensor Loader::Impl::keys_of(const std::vector<std::int64_t>& samples, std::int64_t epoch) const {
  at::Tensor keys = at::empty({static_cast<std::int64_t>(samples.size())}, at::TensorOptions().dtype(at::kLong).pinned_memory(pinned));
  const std::uint64_t key = base::mix(static_cast<std::uint64_t>(options.seed), static_cast<std::uint64_t>(epoch));
  for (std::size_t row = 0; row < samples.size(); ++row)
    keys.data_ptr<std::int64_t>()[row] = static_cast<std::int64_t>(base::mix(key, static_cast<std::uint64_t>(samples[row])));
  return keys;
}

Batch Loader::Impl::make(std::int64_t ticket) const {
  Batch batch;
  batch.samples = samples_of(ticket);
  const auto rows = static_cast<std::int64_t>(batch.samples.size());
  const std::int64_t time = time_of(batch.samples);
  const auto kind = at::TensorOptions().dtype(at::kLong).pinned_memory(pinned);
  batch.tokens = at::empty({rows, time}, kind);
  batch.targets = at::empty({rows, time}, kind);
  for (std::int64_t row = 0; row < rows; ++row) {
    const std::span tokens(batch.tokens.data_ptr<std::int64_t>() + row * time, static_cast<std::size_t>(time));
    const std::span targets(batch.targets.data_ptr<std::int64_t>() + row * time, static_cast<std::size_t>(time));
    const std::int64_t sample = batch.samples[static_cast<std::size_t>(row)];
    const auto length = static_cast<std::size_t>(sample < 0 ? 0 : corpus->length(sample));
    if (sample >= 0) corpus->read(sample, tokens.first(length), targets.first(length));
    std::fill(tokens.begin() + static_cast<std::ptrdiff_t>(length), tokens.end(), 0);
    std::fill(targets.begin() + static_cast<std::ptrdiff_t>(length), targets.end(), untrained);
    batch.trained_tokens += time - std::count(targets.begin(), targets.end(), untrained);
  }
  if (corpus->packed()) batch.starts = starts_of(*corpus, batch.samples, time);
  if (options.keys) batch.keys = keys_of(batch.samples, position_of_step(ticket / options.gradient_accumulation).epoch);
  return batch;
}

void Loader::Impl::read_ahead() {
  base::Lock lock(mutex);
  while (true) {
    room.wait(lock,
              [this]() LOCKSTEP_REQUIRES(mutex) { return stopping || next_ticket < taken + static_cast<std::int64_t>(slots.size()); });
    if (stopping || next_ticket >= end_ticket()) return;
    const std::int64_t ticket = next_ticket++;
    Slot slot;
    slot.ready = true;
    lock.unlock();
    try {
      slot.batch = make(ticket);
    } catch (...) {
      slot.error = std::current_exception();
    }
    lock.lock();
    slots[static_cast<std::size_t>(ticket) % slots.size()] = std::move(slot);
    ready.notify_one();
  }
}

Batch Loader::Impl::take() {
  base::Lock lock(mutex);
  if (readers.empty()) {
    Batch batch = make(taken);
    ++taken;
    return batch;
  }
  Slot& slot = slots[static_cast<std::size_t>(taken) % slots.size()];
  ready.wait(lock, [&] { return slot.ready; });
  if (slot.error) std::rethrow_exception(slot.error);  // the slot stays, so a further call says the same
  Batch batch = std::move(slot.batch);
  slot = {};
  ++taken;
  room.notify_one();
  return batch;
}

Loader::Loader(std::shared_ptr<const Corpus> corpus, const Options& options, Position start)
    : impl_(std::make_unique<Impl>(std::move(corpus), options, start)) {}
Loader::~Loader() = default;

std::vector<Batch> Loader::next() {
  std::vector<Batch> batches;
  if (!impl_->options.repeat && impl_->step >= impl_->first_epoch_steps) return batches;
  for (std::int64_t i = 0; i < impl_->options.gradient_accumulation; ++i) batches.push_back(impl_->take());
  ++impl_->step;
  return batches;
}

Position Loader::position() const { return impl_->position_of_step(impl_->step); }
std::int64_t Loader::steps_per_epoch() const { return impl_->epoch_steps; }

}  // namespace lockstep::data
