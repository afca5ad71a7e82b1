// Starts gathers ahead, waits where layers need them.
#include "rank/parallel/gathers.h"

#include <algorithm>

#include "base/error.h"

namespace lockstep::parallel {
namespace {

// The embedding and the first layer: nothing in a step hides their gathers, the update before it does.
constexpr std::size_t early_units = 2;

}  // namespace

Gathers::Gathers(const comm::Group& group, const std::vector<std::optional<CutUnit>>& units) : group_(group), entries_(units.size()) {
  for (std::size_t i = 0; i < units.size(); ++i) {
    if (units[i] && units[i]->slot) slots_.resize(std::max(slots_.size(), *units[i]->slot + 1));
    entries_[i].what = units[i];
  }
}

void Gathers::start(std::size_t unit) {
  Entry& entry = entries_[unit];
  if (entry.state != State::absent || rehearsing_) return;
  if (entry.what->slot) {
    std::optional<std::size_t>& holder = slots_[*entry.what->slot];
    if (holder) {
      base::check(entries_[*holder].open == 0, "a slot is taken over when its unit is closed");
      finish(*holder);
      entries_[*holder].state = State::absent;
    }
    holder = unit;
  }
  const model::Unit& held = *entry.what->unit;
  entry.work = group_.all_gather(held.gathered_weights(), held.weights_to_gather(), fmt::format("weights of {}", held.name()));
  entry.state = State::coming;
}

void Gathers::finish(std::size_t unit) {
  Entry& entry = entries_[unit];
  if (entry.state != State::coming) return;
  entry.work.wait();
  entry.state = State::here;
  // Counted when it has come: what comes early is of the step that uses it.
  ++count_.gathers;
  count_.bytes += static_cast<std::int64_t>(entry.what->unit->weights_to_gather().nbytes()) * (group_.size() - 1);
}

std::optional<std::size_t> Gathers::after(std::size_t unit, model::Pass::Direction direction) const {
  const bool forward = direction == model::Pass::Direction::forward;
  const std::size_t next = forward ? unit + 1 : unit - 1;  // one less than 0 is beyond all
  if (next >= entries_.size() || !entries_[next].what || entries_[next].open > 0) return std::nullopt;
  return next;
}

void Gathers::open(std::size_t unit, model::Pass::Direction direction) {
  Entry& entry = entries_[unit];
  if (!entry.what) return;
  ++entry.open;
  if (std::exchange(stale_, false)) start_own_memory_from(0);
  start(unit);
  finish(unit);
  if (const auto next = after(unit, direction)) {
    start(*next);
    if (direction == model::Pass::Direction::forward) start_own_memory_from(*next + 1);
  }
}

// Those in a row there: they have to wait for nobody's slot.
void Gathers::start_own_memory_from(std::size_t unit) {
  for (; unit < entries_.size() && (!entries_[unit].what || !entries_[unit].what->slot); ++unit)
    if (entries_[unit].what) start(unit);
}

void Gathers::close(std::size_t unit) {
  if (entries_[unit].what) --entries_[unit].open;
}

void Gathers::rehearse(bool on) {
  rehearsing_ = on;
  for (Entry& entry : entries_) entry.open = 0;
}

void Gathers::settle() {
  for (std::size_t i = 0; i < entries_.size(); ++i) finish(i);
}

std::optional<Gathers::Books> Gathers::books() const {
  Books books{.here = {}, .slots = slots_, .stale = stale_};
  for (const Entry& entry : entries_) {
    if (entry.state == State::coming || entry.open > 0) return std::nullopt;
    books.here.push_back(entry.state == State::here);
  }
  return books;
}

void Gathers::set_books(const Books& books) {
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    entries_[i].state = books.here[i] ? State::here : State::absent;
    entries_[i].open = 0;
    entries_[i].work = {};
  }
  slots_ = books.slots;
  stale_ = books.stale;
}

void Gathers::forget() {
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    finish(i);
    entries_[i].state = State::absent;
  }
  std::fill(slots_.begin(), slots_.end(), std::nullopt);
  stale_ = true;
}

void Gathers::come_early(std::size_t through) {
  const std::size_t end = std::min({through + 1, early_units, entries_.size()});
  for (std::size_t i = 0; i < end; ++i)
    if (entries_[i].what) start(i);
}

bool Gathers::at_begin() const {
  for (std::size_t i = 0; i < entries_.size(); ++i)
    if ((entries_[i].state == State::here) != (entries_[i].what && i < early_units)) return false;
  return stale_;
}

void Gathers::begin_step() {
  settle();
  if (at_begin()) return;
  forget();
  come_early(early_units);
  settle();
}

}  // namespace lockstep::parallel
