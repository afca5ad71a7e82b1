// Makes tables and looks for what is wrong with them.
#include "layout/spread/schedule.h"

#include <fmt/format.h>

#include <optional>
#include <set>

#include "base/error.h"

namespace lockstep::layout {
namespace {

// The layers of an action in the order it visits them.
std::vector<std::size_t> visits(Do pass, std::size_t units) {
  std::vector<std::size_t> order;
  for (std::size_t i = 0; i < units; ++i) order.push_back(pass == Do::forward ? i : units - 1 - i);
  return order;
}

std::int64_t last_backward(const std::vector<Action>& schedule) {
  std::int64_t last = -1;
  for (const Action& action : schedule)
    if (action.what == Do::backward) last = action.flight;
  return last;
}

}  // namespace

std::vector<Action> plain_schedule(std::int64_t micro_batches) {
  std::vector<Action> schedule;
  for (std::int64_t i = 0; i < micro_batches; ++i) {
    schedule.push_back({Do::forward, i});
    schedule.push_back({Do::backward, i});
  }
  return schedule;
}

std::string to_text(const std::vector<Action>& schedule) {
  std::string text;
  for (const Action& action : schedule)
    text += fmt::format("{}{}{}", text.empty() ? "" : " ", action.what == Do::forward ? "F" : "B", action.flight);
  return text;
}

std::string wrong_with(const std::vector<Action>& schedule, std::int64_t micro_batches, std::int64_t most_in_flight) {
  std::set<std::int64_t> begun, done;
  for (const auto& [what, flight] : schedule) {
    if (flight < 0 || flight >= micro_batches) return fmt::format("there is no micro-batch {}", flight);
    if (what == Do::forward) {
      if (!begun.insert(flight).second) return fmt::format("F{} comes twice", flight);
      if (std::int64_t(begun.size() - done.size()) > most_in_flight)
        return fmt::format("at F{} more than {} micro-batches are in flight", flight, most_in_flight);
      continue;
    }
    if (!begun.contains(flight)) return fmt::format("B{} comes before F{}", flight, flight);
    if (!done.insert(flight).second) return fmt::format("B{} comes twice", flight);
  }
  for (std::int64_t flight = 0; flight < micro_batches; ++flight)
    if (!done.contains(flight)) return fmt::format("B{} never comes", flight);
  return "";
}

std::vector<Step> gather_table(const std::vector<Action>& schedule, std::size_t units, const Placement& placement) {
  const std::string reason = impossible(placement);
  base::check(reason.empty() && units > 0, reason.empty() ? "a table has units" : reason);
  const bool sharded = placement.weights == Spread::shard;
  const std::int64_t last = last_backward(schedule);
  std::vector<Step> table;
  std::optional<std::size_t> open[slots];  // which unit each slot holds
  const auto gather = [&](const Action& action, std::size_t unit) {
    if (!sharded || open[unit % slots] == unit) return;
    open[unit % slots] = unit;
    table.push_back({Move::gather, action.what, action.flight, unit, unit % slots});
  };
  for (std::size_t a = 0; a < schedule.size(); ++a) {
    const Action& action = schedule[a];
    const std::vector<std::size_t> order = visits(action.what, units);
    for (std::size_t i = 0; i < order.size(); ++i) {
      const std::size_t unit = order[i], slot = sharded ? unit % slots : 0;
      gather(action, unit);
      if (i + 1 < order.size()) gather(action, order[i + 1]);
      table.push_back({Move::compute, action.what, action.flight, unit, slot});
      if (action.what == Do::backward && (placement.gradients != Spread::whole || action.flight == last))
        table.push_back({Move::reduce, action.what, action.flight, unit, 0});
      const bool stays = i + 1 == order.size() && a + 1 < schedule.size() && visits(schedule[a + 1].what, units).front() == unit;
      if (!sharded || stays) continue;
      table.push_back({Move::release, action.what, action.flight, unit, slot});
      open[slot].reset();
    }
  }
  return table;
}

namespace {

// Follows a table and remembers what is where.
class Walk {
 public:
  Walk(std::size_t units, const Placement& placement, std::int64_t last)
      : sharded_(placement.weights == Spread::shard), every_(placement.gradients != Spread::whole), last_(last), units_(units) {}

  std::string go(const std::vector<Step>& table) {
    for (const Step& step : table) {
      if (step.unit >= units_) return fmt::format("there is no unit {}", step.unit);
      std::string wrong = one(step);
      if (!wrong.empty()) return wrong;
    }
    for (const auto& held : open_)
      if (held) return fmt::format("unit {} is never released", *held);
    return "";
  }

  std::vector<Step> computed;
  std::set<std::pair<std::int64_t, std::size_t>> reduced;

 private:
  std::string one(const Step& step) {
    const auto key = std::pair(step.flight, step.unit);
    switch (step.move) {
      case Move::gather:
        if (!sharded_) return fmt::format("unit {} is gathered although it is whole", step.unit);
        if (step.slot >= slots) return fmt::format("there is no slot {}", step.slot);
        if (open_[step.slot]) return fmt::format("unit {} is gathered over unit {}, which is open", step.unit, *open_[step.slot]);
        open_[step.slot] = step.unit;
        return "";
      case Move::release:
        if (step.slot >= slots || open_[step.slot] != step.unit) return fmt::format("unit {} is released but not open", step.unit);
        open_[step.slot].reset();
        return "";
      case Move::compute:
        if (sharded_ && (step.slot >= slots || open_[step.slot] != step.unit))
          return fmt::format("unit {} is computed with weights that are not there", step.unit);
        computed.push_back(step);
        if (step.pass == Do::backward) complete_.insert(key);
        return "";
      case Move::reduce:
        if (!complete_.contains(key)) return fmt::format("unit {}'s gradient is reduced before backward of {}", step.unit, step.flight);
        if (!every_ && step.flight != last_) return fmt::format("unit {}'s gradient is reduced before the last micro-batch", step.unit);
        if (!reduced.insert(key).second) return fmt::format("unit {}'s gradient is reduced twice", step.unit);
        return "";
    }
    throw base::Bug("a move that has no name");
  }

  bool sharded_, every_;
  std::int64_t last_;
  std::size_t units_;
  std::optional<std::size_t> open_[slots];
  std::set<std::pair<std::int64_t, std::size_t>> complete_;
};

}  // namespace

std::string wrong_with(const std::vector<Step>& table, const std::vector<Action>& schedule, std::size_t units, const Placement& placement) {
  Walk walk(units, placement, last_backward(schedule));
  if (std::string wrong = walk.go(table); !wrong.empty()) return wrong;
  std::size_t next = 0;
  for (const Action& action : schedule) {
    for (const std::size_t unit : visits(action.what, units)) {
      const bool is = next < walk.computed.size() && walk.computed[next].pass == action.what &&
                      walk.computed[next].flight == action.flight && walk.computed[next].unit == unit;
      if (!is)
        return fmt::format("unit {} of {}{} is not computed in its turn", unit, action.what == Do::forward ? "F" : "B", action.flight);
      ++next;
      const bool must = action.what == Do::backward && (placement.gradients != Spread::whole || action.flight == last_backward(schedule));
      if (must && !walk.reduced.contains({action.flight, unit})) return fmt::format("unit {}'s gradient is never reduced", unit);
    }
  }
  return next == walk.computed.size() ? "" : "more is computed than the schedule says";
}

Traffic traffic_of(const std::vector<Step>& table) {
  Traffic traffic;
  for (const Step& step : table) {
    traffic.gathers += step.move == Move::gather;
    traffic.reductions += step.move == Move::reduce;
  }
  return traffic;
}

}  // namespace lockstep::layout
