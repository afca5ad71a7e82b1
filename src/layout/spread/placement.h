// Which rank has which slice of each unit: placements over one mesh axis as integer tables, for any number of ranks.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "layout/unit.h"

namespace lockstep::layout {

// whole: every rank has all of it. shard: equal slices of a unit's flat buffer, padded where they do not divide. owned: whole matrices,
// dealt out to ranks, for optimizers that look at matrices (Muon, Adafactor).
enum class Spread { whole, shard, owned };

// How a class of leaves lies along one axis of the mesh. Replicas, ZeRO-1, 2, 3 are rows of one table, no modes.
struct Placement {
  Spread weights = Spread::whole;
  Spread gradients = Spread::whole;
  Spread states = Spread::whole;

  bool operator==(const Placement&) const = default;
};
inline constexpr Placement replicas{};
inline constexpr Placement zero_1{.states = Spread::shard};
inline constexpr Placement zero_2{.gradients = Spread::shard, .states = Spread::shard};
inline constexpr Placement zero_3{.weights = Spread::shard, .gradients = Spread::shard, .states = Spread::shard};

// Elements [begin, begin + count) of a unit's flat buffer.
struct Slice {
  std::size_t unit;
  std::int64_t begin, count;

  bool operator==(const Slice&) const = default;
};

// Slices are cut at multiples of so many elements: a stretch of which squares are summed in f32.
inline constexpr std::int64_t slice_grain = 512;

// Where a unit may be cut into shards: at multiples of slice_grain, but within these stretches at multiples of 256 from their beginning:
// numbers whose 8-bit states share a scale stay together.
struct Cuttable {
  std::int64_t elements = 0;
  std::vector<std::pair<std::int64_t, std::int64_t>> blocks = {};  // begin, end
};
Cuttable cuttable(const UnitSpec& unit, const FlatLayout& flat, config::Optimizer optimizer);

// Elements of every rank's slice, padding included: what a gather moves from each. The smallest that cuts where it is allowed.
std::int64_t shard_elements(const Cuttable& unit, int ranks);
// How a unit is cut: its numbers, or the bytes of one that is packed.
struct UnitCut {
  std::int64_t room;           // of each rank
  std::int64_t elements;       // of the whole, padding between ranks left out
  std::int64_t element_bytes;  // as layers read them
  bool packed = false;
};
UnitCut cut_of(const UnitSpec& unit, const Holding& holding, config::Optimizer optimizer, int ranks);

// What parallel.shard says of trained units, and of frozen ones beside adapters.
Placement placement_of(const config::RunConfig& config);
// Ranks that hold a unit between them, of so many; 1 where units are whole.
int sharing_ranks(const config::RunConfig& config, int ranks);

// shard: what a rank holds of a unit, in slices of `size`; the last ones are shorter or empty where that does not divide.
Slice shard_of(std::size_t unit, std::int64_t elements, int rank, std::int64_t size);
std::vector<std::vector<Slice>> shards_by_rank(const std::vector<UnitCut>& units, int ranks);
// Pieces that the method updates as a whole: where units are cut, each has an owner.
bool updates_whole(config::Optimizer method, const LeafSpec& leaf, const Piece& piece);
std::vector<Slice> whole_pieces(const std::vector<UnitSpec>& units, config::Optimizer method);
// owned: each to the rank with the least so far, the largest first; the same on every rank.
std::vector<std::vector<Slice>> dealt_by_rank(std::vector<Slice> slices, int ranks);

// The first thing that is wrong with a table of slices that shall cover every element of each unit once; empty: nothing.
std::string uncovered(const std::vector<std::int64_t>& elements, const std::vector<std::vector<Slice>>& by_rank);
// What does not go together, in a sentence; "" where all does.
std::string impossible(const Placement& placement);

}  // namespace lockstep::layout
