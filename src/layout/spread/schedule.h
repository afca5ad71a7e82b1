// The actions of one step as tables: which flight goes forward and backward when, and which units are gathered and reduced around them.
// Checked before anything runs.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "layout/spread/placement.h"

namespace lockstep::layout {

enum class Do { forward, backward };

struct Action {
  Do what;
  std::int64_t flight;  // micro-batch of the step

  bool operator==(const Action&) const = default;
};
// F0 B0 F1 B1 ...
std::vector<Action> plain_schedule(std::int64_t micro_batches);
// "F0 B0 F1 B1"
std::string to_text(const std::vector<Action>& schedule);
// The first thing wrong with a schedule of so many micro-batches, of which at most `most_in_flight` may be between F and B; "" if nothing.
std::string wrong_with(const std::vector<Action>& schedule, std::int64_t micro_batches, std::int64_t most_in_flight);

// What is done to a unit's numbers around the layers, in order.
enum class Move { gather, compute, release, reduce };
struct Step {
  Move move;
  Do pass;
  std::int64_t flight;
  std::size_t unit;
  std::size_t slot = 0;  // of gathered weights

  bool operator==(const Step&) const = default;
};
inline constexpr std::size_t slots = 2;

// For `units` layers in forward order under one placement. Sharded weights are gathered one layer ahead into slot unit % 2; the last layer
// stays open at the turn; gradients are reduced as layers complete: every micro-batch where they are sharded, with the last one otherwise.
std::vector<Step> gather_table(const std::vector<Action>& schedule, std::size_t units, const Placement& placement);
// The first thing wrong with a table: weights computed with that are not there, a slot overwritten while it is open, a gradient reduced
// before it is complete, twice or never. "" if nothing.
std::string wrong_with(const std::vector<Step>& table, const std::vector<Action>& schedule, std::size_t units, const Placement& placement);

struct Traffic {
  std::int64_t gathers = 0, reductions = 0;
};
Traffic traffic_of(const std::vector<Step>& table);

}  // namespace lockstep::layout
