// Counts leaves, starts what is complete, adds what has come.
#include "rank/parallel/shard_reduction.h"

#include <algorithm>

#include "base/error.h"
#include "layout/spread/schedule.h"
#include "rank/parallel/rank_order_sum.h"
#include "rank/parallel/wire.h"

namespace lockstep::parallel {

ShardReduction::ShardReduction(const Groups& groups, std::vector<std::optional<CutUnit>> units, const config::ParallelConfig& options,
                               bool every_micro_batch)
    : groups_(groups), options_(options), every_micro_batch_(every_micro_batch), entries_(units.size()) {
  for (std::size_t i = 0; i < units.size(); ++i) {
    if (!units[i]) continue;
    if (units[i]->slot) slots_.resize(std::max(slots_.size(), *units[i]->slot + 1), i);
    entries_[i].ready.resize(units[i]->unit->spec().leaves.size());
    entries_[i].what = std::move(units[i]);
  }
}

at::ScalarType ShardReduction::wire_of(const model::Unit& unit) const {
  return wire_type(options_, unit.weights().scalar_type(), unit.gradients().scalar_type());
}

void ShardReduction::begin(std::int64_t micro) {
  if (micro_ == micro) return;
  for (Entry& entry : entries_) {
    if (micro_ && entry.what && !entry.started) start_incomplete(entry);
    std::fill(entry.ready.begin(), entry.ready.end(), false);
    entry.started = false;
  }
  micro_ = micro;
}

void ShardReduction::open(std::size_t unit, const model::Pass& pass) {
  if (pass.direction != model::Pass::Direction::backward || !reduces()) return;
  begin(pass.micro.index);
  Entry& entry = entries_[unit];
  if (!entry.what) return;
  if (!entry.what->slot) return settle(entry);
  Entry& before = entries_[std::exchange(slots_[*entry.what->slot], unit)];
  settle(before);
}

void ShardReduction::complete(std::size_t unit, std::size_t leaf) {
  Entry& entry = entries_[unit];
  if (!entry.what || !reduces()) return;
  base::check(!entry.ready[leaf], "a leaf's gradient is announced once a micro-step");
  entry.ready[leaf] = true;
  if (std::find(entry.ready.begin(), entry.ready.end(), false) == entry.ready.end()) start(entry);
}

void ShardReduction::close(std::size_t unit, const model::Pass& pass) {
  Entry& entry = entries_[unit];
  if (pass.direction != model::Pass::Direction::backward || !entry.what || !entry.what->slot || !reduces()) return;
  if (!entry.started) start_incomplete(entry);
}

void ShardReduction::start(Entry& entry) {
  // Their copies take memory: the next one waits for the oldest.
  while (under_way_.size() >= layout::most_reductions) settle(*under_way_.front());
  const model::Unit& unit = *entry.what->unit;
  const at::ScalarType wire = wire_of(unit);
  entry.sent = unit.gradients_to_sum().to(wire);
  entry.sum = at::empty_like(unit.summed_gradients(), at::TensorOptions().dtype(wire));
  entry.started = true;
  under_way_.push_back(&entry);
  if (rehearsing_) return static_cast<void>(entry.work = rehearse_in_rank_order(entry.sent));
  entry.work = reduce_in_rank_order(groups_.shards, entry.sum, entry.sent, fmt::format("gradients of {}", unit.name()));
  entry.last = armed_;
  ++count_.reductions;
  count_.bytes += static_cast<std::int64_t>(entry.sum.nbytes()) * (groups_.shards.size() - 1);
}

// The memory of its gradients is free, and zero, when this returns.
void ShardReduction::settle(Entry& entry) {
  if (std::erase(under_way_, &entry) == 0) return;
  const model::Unit& unit = *entry.what->unit;
  entry.work.wait();
  unit.gradients_to_sum().zero_();
  if (!rehearsing_) {
    if (std::exchange(entry.holds, true))
      unit.summed_gradients().add_(entry.sum);
    else
      unit.summed_gradients().copy_(entry.sum);  // not added to zero: that would lose the sign of another zero
  }
  entry.work = {};
  entry.sent = entry.sum = at::Tensor();
  // Not before the last micro-batch: what is settled when that begins may be the one before.
  if (entry.last && groups_.replicas.size() > 1) sum_between_replicas(unit);
}

void ShardReduction::sum_between_replicas(const model::Unit& unit) {
  // Where they travel in another type their copies take memory: the next one waits for the oldest.
  const bool copied = unit.held_gradients().scalar_type() != wire_of(unit);
  while (copied && between_replicas_.size() >= layout::most_reductions) {
    between_replicas_.front().wait();
    between_replicas_.pop_front();
  }
  between_replicas_.push_back(groups_.replicas.all_reduce_as(wire_of(unit), unit.held_gradients(), comm::Reduce::sum,
                                                             fmt::format("gradients of {} between replicas", unit.name())));
}

void ShardReduction::rehearse(bool on) {
  base::check(between_replicas_.empty() && (rehearsing_ || under_way_.empty()), "a rehearsal begins between steps");
  rehearsing_ = on;
  for (Entry& entry : entries_) {
    entry.work = {};
    entry.sent = entry.sum = at::Tensor();
    entry.started = entry.last = false;
    std::fill(entry.ready.begin(), entry.ready.end(), false);
  }
  under_way_.clear();
  micro_.reset();
}

// Unused parameters contribute what their memory holds: zero, or the earlier micro-steps' sum.
void ShardReduction::start_incomplete(Entry& entry) {
  if (options_.find_unused_parameters) return start(entry);
  std::vector<std::string> names;
  const auto& leaves = entry.what->unit->spec().leaves;
  for (std::size_t i = 0; i < leaves.size(); ++i)
    if (!entry.ready[i]) add_names(names, leaves[i]);
  throw without_gradient(groups_.shards.rank(), names);
}

void ShardReduction::start_all() {
  base::check(under_way_.empty(), "all gradients stand when all are reduced at once");
  armed_ = true;
  for (auto entry = entries_.rbegin(); entry != entries_.rend(); ++entry) {
    if (!entry->what) continue;
    start(*entry);
    settle(*entry);
  }
  micro_.reset();
}

void ShardReduction::settle_all() {
  for (auto entry = entries_.rbegin(); entry != entries_.rend(); ++entry) {
    if (micro_ && entry->what && !entry->started) start_incomplete(*entry);
  }
  for (Entry& entry : entries_) settle(entry);
  micro_.reset();
}

std::optional<std::vector<bool>> ShardReduction::books() const {
  if (!under_way_.empty()) return std::nullopt;
  std::vector<bool> holds;
  for (const Entry& entry : entries_) holds.push_back(entry.holds);
  return holds;
}

void ShardReduction::set_books(const std::vector<bool>& holds) {
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    Entry& entry = entries_[i];
    entry.holds = holds[i];
    entry.work = {};
    entry.sent = entry.sum = at::Tensor();
  }
  under_way_.clear();
  between_replicas_.clear();
  micro_.reset();
  armed_ = false;
}

void ShardReduction::finish() {
  settle_all();
  for (Entry& entry : entries_) entry.holds = false;
  for (comm::Work& work : between_replicas_) work.wait();
  between_replicas_.clear();
  armed_ = false;
}

}  // namespace lockstep::parallel
