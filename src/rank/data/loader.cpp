// Reader threads that keep a ring of micro-batches filled, in the global order.
#include <algorithm>
#include <exception>
#include <limits>
#include <thread>
#include <utility>

#include <ATen/Context.h>

#include "base/error.h"
#include "base/mutex.h"
#include "rank/data/data.h"

namespace lockstep::data {
// A ticket numbers this rank's micro-batches from the start position on: ticket = step * gradient_accumulation + micro-step.
// Readers draw tickets in order and put what they made into slot ticket % slots; next() empties the slots in the same order.
struct Loader::Impl {
  std::shared_ptr<const Source> source;
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

  Impl(std::shared_ptr<const Source> source_, const Options& options_, Position start_);
  ~Impl();

  std::int64_t end_ticket() const {
    return options.repeat ? std::numeric_limits<std::int64_t>::max() : first_epoch_steps * options.gradient_accumulation;
  }
  Position position_of_step(std::int64_t number) const;
  std::vector<std::int64_t> samples_of(std::int64_t ticket) const;
  Batch make(std::int64_t ticket) const;
  void read_ahead();
  Batch take();
};

Loader::Impl::Impl(std::shared_ptr<const Source> source_, const Options& options_, Position start_)
    : source(std::move(source_)), options(options_), start(start_) {
  const auto& [index, count] = options.shard;
  base::check(options.batch_size > 0 && options.gradient_accumulation > 0, "a batch holds something");
  base::check(count > 0 && index >= 0 && index < count, "a shard is one of its count");
  base::check(start.epoch >= 0 && start.sample >= 0, "a position is not negative");
  const std::int64_t samples = source->samples();
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
  const Order order(source->samples(), options.seed, position.epoch, options.shuffle);
  std::vector<std::int64_t> samples;
  for (std::int64_t at = first; at < first + options.batch_size; ++at) {
    samples.push_back(at < source->samples() ? order.sample_at(at) : -1);  // the epoch ends within this batch: weight 0
  }
  return samples;
}

Batch Loader::Impl::make(std::int64_t ticket) const {
  return source->make(samples_of(ticket), position_of_step(ticket / options.gradient_accumulation).epoch, pinned);
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

Loader::Loader(std::shared_ptr<const Source> source, const Options& options, Position start)
    : impl_(std::make_unique<Impl>(std::move(source), options, start)) {}
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
