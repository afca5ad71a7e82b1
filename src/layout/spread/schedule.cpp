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

std::optional<std::size_t> slot_of(std::size_t unit, std::size_t units) {
  if (unit == 0 || unit + 1 == units) return std::nullopt;
  return unit % slots;
}

namespace {

// Frozen weights have no gradients that would have to lie as they do.
std::string impossible(const ModelUnits& model, const Placement& placement) { return model.trained ? layout::impossible(placement) : ""; }

bool reduces(const Action& action, const ModelUnits& model, const Placement& placement, std::int64_t last) {
  return model.trained && action.what == Do::backward && (placement.gradients != Spread::whole || action.flight == last);
}

}  // namespace

std::vector<Step> gather_table(const std::vector<Action>& schedule, const ModelUnits& model, const Placement& placement) {
  const std::string reason = impossible(model, placement);
  base::check(reason.empty() && model.units > 0, reason.empty() ? "a table has units" : reason);
  const std::size_t units = model.units;
  const bool takes_turns = placement.weights == Spread::shard, cut = takes_turns || placement.states != Spread::whole;
  const auto place_of = [&](std::size_t unit) { return takes_turns ? slot_of(unit, units) : std::nullopt; };
  const std::int64_t last = last_backward(schedule);
  std::vector<Step> table;
  for (std::size_t unit = 0; cut && unit < units; ++unit)
    if (!place_of(unit)) table.push_back({Move::gather, Do::forward, 0, unit});
  std::optional<std::size_t> holders[slots];
  const auto gather = [&](const Action& action, std::size_t unit) {
    const auto slot = place_of(unit);
    if (!slot || holders[*slot] == unit) return;
    holders[*slot] = unit;
    table.push_back({Move::gather, action.what, action.flight, unit, slot});
  };
  for (const Action& action : schedule) {
    const std::vector<std::size_t> order = visits(action.what, units);
    for (std::size_t i = 0; i < order.size(); ++i) {
      const std::size_t unit = order[i];
      gather(action, unit);
      if (i + 1 < order.size()) gather(action, order[i + 1]);
      table.push_back({Move::compute, action.what, action.flight, unit, place_of(unit)});
      if (reduces(action, model, placement, last)) table.push_back({Move::reduce, action.what, action.flight, unit});
      if (place_of(unit)) table.push_back({Move::release, action.what, action.flight, unit, place_of(unit)});
    }
  }
  return table;
}

namespace {

// Follows a table and remembers what is where.
class Walk {
 public:
  Walk(const ModelUnits& model, const Placement& placement, std::int64_t last)
      : model_(model), placement_(placement), last_(last), own_(model.units) {}

  std::string go(const std::vector<Step>& table) {
    for (const Step& step : table) {
      if (step.unit >= model_.units) return fmt::format("there is no unit {}", step.unit);
      std::string wrong = one(step);
      if (!wrong.empty()) return wrong;
    }
    for (const Slot& slot : slots_)
      if (slot.open) return fmt::format("unit {} is never released", *slot.holder);
    return "";
  }

  std::vector<Step> computed;
  std::set<std::pair<std::int64_t, std::size_t>> reduced;

 private:
  struct Slot {
    std::optional<std::size_t> holder;
    bool open = false;  // gathered, and not released yet
  };
  bool cut() const { return placement_.weights == Spread::shard || placement_.states != Spread::whole; }

  std::string one(const Step& step) {
    const auto key = std::pair(step.flight, step.unit);
    if (step.slot && *step.slot >= slots) return fmt::format("there is no slot {}", *step.slot);
    switch (step.move) {
      case Move::gather: return gather(step);
      case Move::release:
        if (!step.slot || slots_[*step.slot].holder != step.unit || !slots_[*step.slot].open)
          return fmt::format("unit {} is released but not open", step.unit);
        slots_[*step.slot].open = false;
        return "";
      case Move::compute:
        if (step.slot ? slots_[*step.slot].holder != step.unit : cut() && !own_[step.unit])
          return fmt::format("unit {} is computed with weights that are not there", step.unit);
        if (step.slot) slots_[*step.slot].open = true;
        computed.push_back(step);
        if (step.pass == Do::backward) complete_.insert(key);
        return "";
      case Move::reduce:
        if (!complete_.contains(key)) return fmt::format("unit {}'s gradient is reduced before backward of {}", step.unit, step.flight);
        if (placement_.gradients == Spread::whole && step.flight != last_)
          return fmt::format("unit {}'s gradient is reduced before the last micro-batch", step.unit);
        if (!reduced.insert(key).second) return fmt::format("unit {}'s gradient is reduced twice", step.unit);
        return "";
    }
    throw base::Bug("a move that has no name");
  }

  std::string gather(const Step& step) {
    if (!cut()) return fmt::format("unit {} is gathered although it is whole", step.unit);
    if (!step.slot) {
      if (own_[step.unit]) return fmt::format("unit {} is gathered twice", step.unit);
      own_[step.unit] = true;
      return "";
    }
    Slot& slot = slots_[*step.slot];
    if (slot.open) return fmt::format("unit {} is gathered over unit {}, which is open", step.unit, *slot.holder);
    if (slot.holder == step.unit) return fmt::format("unit {} is gathered although its slot holds it", step.unit);
    slot = {step.unit, /*open=*/true};
    return "";
  }

  const ModelUnits& model_;
  const Placement& placement_;
  std::int64_t last_;
  std::vector<bool> own_;  // units with memory of their own that were gathered
  Slot slots_[slots];
  std::set<std::pair<std::int64_t, std::size_t>> complete_;
};

}  // namespace

std::string wrong_with(const std::vector<Step>& table, const std::vector<Action>& schedule, const ModelUnits& model,
                       const Placement& placement) {
  const std::int64_t last = last_backward(schedule);
  Walk walk(model, placement, last);
  if (std::string wrong = walk.go(table); !wrong.empty()) return wrong;
  std::size_t next = 0;
  for (const Action& action : schedule) {
    for (const std::size_t unit : visits(action.what, model.units)) {
      const bool is = next < walk.computed.size() && walk.computed[next].pass == action.what &&
                      walk.computed[next].flight == action.flight && walk.computed[next].unit == unit;
      if (!is)
        return fmt::format("unit {} of {}{} is not computed in its turn", unit, action.what == Do::forward ? "F" : "B", action.flight);
      ++next;
      if (reduces(action, model, placement, last) && !walk.reduced.contains({action.flight, unit}))
        return fmt::format("unit {}'s gradient is never reduced", unit);
    }
  }
  return next == walk.computed.size() ? "" : "more is computed than the schedule says";
}

Traffic traffic_of(const std::vector<Step>& table, const std::vector<UnitBytes>& units) {
  Traffic traffic;
  for (const Step& step : table) {
    const UnitBytes bytes = units.empty() ? UnitBytes{} : units.at(step.unit);
    if (step.move == Move::gather) ++traffic.gathers, traffic.gathered_bytes += bytes.gathered;
    if (step.move == Move::reduce) ++traffic.reductions, traffic.reduced_bytes += bytes.reduced;
  }
  return traffic;
}

}  // namespace lockstep::layout
