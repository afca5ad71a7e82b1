// What would fit: every placement and recompute policy, the largest batch, and the smallest change of the settings.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "front/plan/memory.h"

namespace lockstep::plan {

enum class Verdict { fits, tight, too_large };
// tight: what is exact fits, and a quarter of what is estimated from above does not. Runs of that kind were seen to fit.
Verdict verdict_of(const layout::RankMemory& memory, std::int64_t device_bytes);

// One placement that these ranks can take: a row of settings and words.
struct PlacementChoice {
  config::ShardKind shard;
  std::int64_t replicate = 1;
  std::string name() const;  // "full", "full in 2 groups"
  bool operator==(const PlacementChoice&) const = default;
};
std::vector<PlacementChoice> placements_for(const config::RunConfig& config, int ranks);

// A change of some settings, and what a rank holds then.
struct Change {
  std::string effect;                 // "the same training", "8-bit states", ...
  std::vector<std::string> settings;  // "parallel.shard=full"; nothing: as it is
  int ranks = 1;
  layout::RankMemory memory;
};
struct Advice {
  std::optional<std::int64_t> largest_batch;  // of a rank, with the settings as they are; nothing: not even one sample
  // The smallest change for each way of training that fits, nearest to what was asked for first: the same numbers, then 8-bit states, then
  // adapters, then adapters beside 4-bit weights. Where these ranks cannot hold the training as it is, the one with more ranks too.
  std::vector<Change> changes;
};
// wish.device_bytes must be known.
Advice advise(const MemoryPlan& plan);

}  // namespace lockstep::plan
