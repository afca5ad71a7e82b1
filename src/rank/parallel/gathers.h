// Units that ranks hold in shards are whole while they are open: what is gathered when, into which memory.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "rank/comm/comm.h"
#include "rank/model/weights/store.h"
#include "rank/parallel/cut_unit.h"

namespace lockstep::parallel {

// A unit stays where it was gathered until another takes its slot, or numbers change: the last layers of a forward are still there when
// backward turns round. While one is at work the next one is under way. Every rank opens the same units in the same order.
//
// One thread, the device's current stream: what was launched on it before a gather is done with the slot.
class Gathers {
 public:
  // units: by number; those that are whole on every rank are not gathered. group and units must outlive it.
  Gathers(const comm::Group& group, const std::vector<std::optional<CutUnit>>& units);

  // Collective. The unit is whole when it returns, on the current stream; the next one in this direction is under way.
  void open(std::size_t unit, model::Pass::Direction direction);
  void close(std::size_t unit);
  // Numbers change: nothing is whole any more, and nothing under way until a unit is opened or come_early() allows it. From the first
  // that is opened on, units with memory of their own come as soon as they are next in forward order: all at once where no unit takes
  // turns, the head behind the last layer where layers do.
  void forget();
  // Numbers of the units up to this one will not change before the next forward: those it begins with are under way.
  void come_early(std::size_t through);
  // As an update leaves them, whatever was opened since: the first units are here and no others.
  void begin_step();
  // Nothing is gathered from here on, or everything again. What was open is closed: a rehearsal may end in the middle of a layer.
  void rehearse(bool on);

  const comm::Group& group() const { return group_; }

  struct Count {
    std::int64_t gathers = 0, bytes = 0;  // that this rank received from others
  };
  const Count& count() const { return count_; }

  // Waits for what is under way.
  void settle();
  // What is where, between micro-steps.
  struct Books {
    std::vector<bool> here;
    std::vector<std::optional<std::size_t>> slots;
    bool stale = true;

    bool operator==(const Books&) const = default;
  };
  std::optional<Books> books() const;  // nothing where a unit is open or under way
  void set_books(const Books& books);
  void set_count(const Count& count) { count_ = count; }

 private:
  enum class State { absent, coming, here };
  struct Entry {
    std::optional<CutUnit> what;
    State state = State::absent;
    int open = 0;
    comm::Work work = {};
  };
  void start(std::size_t unit);
  void finish(std::size_t unit);
  void start_own_memory_from(std::size_t unit);
  bool at_begin() const;
  std::optional<std::size_t> after(std::size_t unit, model::Pass::Direction direction) const;

  const comm::Group& group_;
  std::vector<Entry> entries_;
  std::vector<std::optional<std::size_t>> slots_;  // who has each
  bool rehearsing_ = false;
  bool stale_ = true;  // nothing was opened since numbers changed
  Count count_;
};

}  // namespace lockstep::parallel
