// Cuts and deals.
#include "layout/spread/placement.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/ceil_div.h"
#include "base/error.h"

namespace lockstep::layout {

namespace {

bool may_cut(const Cuttable& unit, std::int64_t at) {
  return std::none_of(unit.blocks.begin(), unit.blocks.end(),
                      [&](const auto& block) { return at > block.first && at < block.second && (at - block.first) % state_block != 0; });
}

}  // namespace

Cuttable cuttable(const UnitSpec& unit, const FlatLayout& flat, config::Optimizer optimizer) {
  Cuttable found{.elements = flat.elements};
  if (optimizer != config::Optimizer::adamw_8bit) return found;
  for (std::size_t i = 0; i < unit.leaves.size(); ++i) {
    if (!flat.offsets[i]) continue;
    std::int64_t begin = *flat.offsets[i];
    for (const Piece& piece : unit.leaves[i].pieces) {
      const std::int64_t end = begin + piece.elements();
      if (piece.elements() >= smallest_coded) found.blocks.emplace_back(begin, end);
      begin = end;
    }
  }
  return found;
}

std::int64_t shard_elements(const Cuttable& unit, int ranks) {
  base::check(ranks >= 1, "a unit is cut for at least one rank");
  std::int64_t size = round_up(std::max<std::int64_t>(base::ceil_div(unit.elements, std::int64_t{ranks}), 1), slice_grain);
  const auto fits = [&] {
    for (std::int64_t at = size; at < unit.elements; at += size)
      if (!may_cut(unit, at)) return false;
    return true;
  };
  while (!fits()) size += slice_grain;
  return size;
}

UnitCut cut_of(const UnitSpec& unit, const Holding& holding, config::Optimizer optimizer, int ranks) {
  if (is_packed(unit, holding)) {
    const std::int64_t bytes = packed_bytes(unit, holding);
    return {shard_elements({.elements = bytes}, ranks), bytes, 1, /*packed=*/true};
  }
  const FlatLayout flat = flat_layout(unit, holding);
  return {shard_elements(cuttable(unit, flat, optimizer), ranks), flat.elements, bytes_of(holding.dtype)};
}

Placement placement_of(const config::RunConfig& config) {
  switch (config.parallel.shard) {
    case config::ShardKind::none: return replicas;
    case config::ShardKind::optimizer: return config.lora.enabled ? replicas : zero_1;
    case config::ShardKind::gradients: return config.lora.enabled ? replicas : zero_2;
    case config::ShardKind::full: return zero_3;
  }
  throw base::Bug("a kind of shards that has no placement");
}

int sharing_ranks(const config::RunConfig& config, int ranks) {
  return placement_of(config) == replicas ? 1 : std::max(1, ranks / static_cast<int>(config.parallel.replicate));
}

Slice shard_of(std::size_t unit, std::int64_t elements, int rank, std::int64_t size) {
  const std::int64_t begin = std::min(elements, size * rank);
  return {unit, begin, std::min(size, elements - begin)};
}

std::vector<std::vector<Slice>> shards_by_rank(const std::vector<UnitCut>& units, int ranks) {
  std::vector<std::vector<Slice>> by_rank(static_cast<std::size_t>(ranks));
  for (int rank = 0; rank < ranks; ++rank) {
    for (std::size_t i = 0; i < units.size(); ++i) {
      const Slice slice = shard_of(i, units[i].elements, rank, units[i].room);
      if (slice.count > 0) by_rank[static_cast<std::size_t>(rank)].push_back(slice);
    }
  }
  return by_rank;
}

bool updates_whole(config::Optimizer method, const LeafSpec& leaf, const Piece& piece) {
  if (method == config::Optimizer::adafactor) return true;
  const bool outer = leaf.role == Role::token_embedding || leaf.role == Role::output_head;
  return method == config::Optimizer::muon && !outer && piece.shape.size() == 2;
}

std::vector<Slice> whole_pieces(const std::vector<UnitSpec>& units, config::Optimizer method) {
  std::vector<Slice> all;
  for (std::size_t i = 0; i < units.size(); ++i) {
    const FlatLayout flat = flat_layout(units[i], {});
    for (std::size_t leaf = 0; leaf < units[i].leaves.size(); ++leaf) {
      std::int64_t begin = *flat.offsets[leaf];
      for (const Piece& piece : units[i].leaves[leaf].pieces) {
        if (updates_whole(method, units[i].leaves[leaf], piece)) all.push_back({i, begin, piece.elements()});
        begin += piece.elements();
      }
    }
  }
  return all;
}

std::vector<std::vector<Slice>> dealt_by_rank(std::vector<Slice> all, int ranks) {
  std::stable_sort(all.begin(), all.end(), [](const Slice& a, const Slice& b) { return a.count > b.count; });
  std::vector<std::vector<Slice>> by_rank(static_cast<std::size_t>(ranks));
  std::vector<std::int64_t> load(by_rank.size(), 0);
  for (const Slice& slice : all) {
    const auto least = std::min_element(load.begin(), load.end());
    *least += slice.count;
    by_rank[static_cast<std::size_t>(least - load.begin())].push_back(slice);
  }
  for (auto& slices : by_rank)
    std::sort(slices.begin(), slices.end(),
              [](const Slice& a, const Slice& b) { return std::pair(a.unit, a.begin) < std::pair(b.unit, b.begin); });
  return by_rank;
}

std::string uncovered(const std::vector<std::int64_t>& elements, const std::vector<std::vector<Slice>>& by_rank) {
  std::vector<std::vector<std::pair<Slice, std::size_t>>> of_unit(elements.size());
  for (std::size_t rank = 0; rank < by_rank.size(); ++rank) {
    for (const Slice& slice : by_rank[rank]) {
      if (slice.unit >= elements.size()) return fmt::format("rank {} has a slice of unit {}, of which there is none", rank, slice.unit);
      of_unit[slice.unit].push_back({slice, rank});
    }
  }
  for (std::size_t unit = 0; unit < elements.size(); ++unit) {
    auto& slices = of_unit[unit];
    std::sort(slices.begin(), slices.end(), [](const auto& a, const auto& b) { return a.first.begin < b.first.begin; });
    std::int64_t next = 0;
    for (const auto& [slice, rank] : slices) {
      if (slice.begin < next) return fmt::format("unit {}: element {} is rank {}'s and another's", unit, slice.begin, rank);
      if (slice.begin > next) return fmt::format("unit {}: elements {} to {} are nobody's", unit, next, slice.begin);
      next += slice.count;
    }
    if (next < elements[unit]) return fmt::format("unit {}: elements {} to {} are nobody's", unit, next, elements[unit]);
    if (next > elements[unit]) return fmt::format("unit {}: a slice ends at {}, behind its {} elements", unit, next, elements[unit]);
  }
  return "";
}

std::string impossible(const Placement& p) {
  if (p.weights == Spread::owned) return "weights are gathered in equal slices: they are whole or sharded, never owned";
  if (p.states == Spread::whole && p.gradients != Spread::whole)
    return "who updates everything needs every gradient: states are whole, gradients are not";
  if (p.states == Spread::whole && p.weights != Spread::whole)
    return "who updates everything holds every weight: states are whole, weights are not";
  if (p.weights == Spread::shard && p.gradients == Spread::whole)
    return "sharded weights have no whole gradient buffer beside them: shard gradients too";
  if (p.gradients == Spread::owned && p.states == Spread::shard)
    return "gradients are owned by matrix, states are cut across matrices: one of them must change";
  return "";
}

}  // namespace lockstep::layout
