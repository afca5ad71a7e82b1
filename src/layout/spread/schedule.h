// The actions of one step as tables: which flight goes forward and backward when, and which units are gathered and reduced around them.
// Checked before anything runs.
#pragma once

#include <cstdint>
#include <optional>
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
  std::optional<std::size_t> slot = {};  // of gathered weights; nothing: memory of its own

  bool operator==(const Step&) const = default;
};
inline constexpr std::size_t slots = 2;
// Reductions under way at once: of two layers, and of the embedding or the head.
inline constexpr std::size_t most_reductions = 3;
// Units in the model's middle take turns in two slots; embedding and head, which are open at once and over many layers, have memory of
// their own.
std::optional<std::size_t> slot_of(std::size_t unit, std::size_t units);

// A model's units in forward order, embedding and head among them.
struct ModelUnits {
  std::size_t units;
  bool trained = true;
};
// What a step moves under one placement. Units with memory of their own are gathered when the step before has changed them; where weights
// are whole between steps, all are. A unit in a slot is gathered one layer ahead, unless the slot still holds it: the last two layers at
// the turn, the first two when the next micro-batch begins. Gradients are reduced as layers complete: of every micro-batch where they are
// sharded, with the last one otherwise.
std::vector<Step> gather_table(const std::vector<Action>& schedule, const ModelUnits& model, const Placement& placement);
// The first thing wrong with a table: weights computed with that are not there, a slot overwritten while it is open, a gradient reduced
// before it is complete, twice or never. "" if nothing.
std::string wrong_with(const std::vector<Step>& table, const std::vector<Action>& schedule, const ModelUnits& model,
                       const Placement& placement);

// What a rank receives from others. exchanges: sums of shares between replicas of shards, once a step; their bytes those of a ring, of a
// rank whose shares are full.
struct Traffic {
  std::int64_t gathers = 0, reductions = 0;
  std::int64_t gathered_bytes = 0, reduced_bytes = 0;
  std::int64_t exchanges = 0, exchanged_bytes = 0;

  bool operator==(const Traffic&) const = default;
};
// By unit: bytes of one gather and of one reduction.
struct UnitBytes {
  std::int64_t gathered = 0, reduced = 0;
};
Traffic traffic_of(const std::vector<Step>& table, const std::vector<UnitBytes>& units = {});

}  // namespace lockstep::layout
