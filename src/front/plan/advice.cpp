// Settings are tried from the smallest change on, until one fits. Nothing is guessed: each try is a plan of its own.
#include "front/plan/advice.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"

namespace lockstep::plan {
namespace {

using config::RunConfig;
using layout::RankMemory;

constexpr std::int64_t kMostSamples = 1 << 14;  // of a rank at once: more than any GPU takes
constexpr int kMostRanks = 1 << 10;

std::optional<RankMemory> memory_with(const RunConfig& config, const layout::MemoryWish& wish) {
  try {
    return layout::rank_memory(config, config::plan_batch(config, wish.ranks), wish);
  } catch (const base::UserError&) {
    return std::nullopt;  // a global batch that does not divide
  }
}

bool fits(const RankMemory& memory, const layout::MemoryWish& wish) { return verdict_of(memory, *wish.device_bytes) != Verdict::too_large; }

// What a person would type to come from one to the other.
std::vector<std::string> settings_between(const RunConfig& from, const RunConfig& to) {
  std::vector<std::string> settings;
  const auto add = [&](std::string_view key, const auto& before, const auto& after) {
    if (before != after) settings.push_back(fmt::format("{}={}", key, after));
  };
  add("lora.enabled", from.lora.enabled, to.lora.enabled);
  add("model.load_in_4bit", from.model.load_in_4bit, to.model.load_in_4bit);
  add("trainer.optimizer", config::name_of(from.trainer.optimizer), config::name_of(to.trainer.optimizer));
  add("parallel.shard", config::name_of(from.parallel.shard), config::name_of(to.parallel.shard));
  add("parallel.replicate", from.parallel.replicate, to.parallel.replicate);
  add("trainer.batch_size", from.trainer.batch_size, to.trainer.batch_size);
  add("trainer.gradient_accumulation", from.trainer.gradient_accumulation, to.trainer.gradient_accumulation);
  add("trainer.recompute", config::name_of(from.trainer.recompute), config::name_of(to.trainer.recompute));
  add("trainer.offload_checkpoints", from.trainer.offload_checkpoints, to.trainer.offload_checkpoints);
  return settings;
}

// Another way of training the model, told to the person who reads it: its numbers are others.
struct Training {
  std::string effect;
  RunConfig config;
};
std::vector<Training> trainings(const RunConfig& config) {
  std::vector<Training> list{{"the same training", config}};
  if (config.lora.enabled) {
    if (config.model.load_in_4bit || config.model.load_in_8bit) return list;
    list.push_back({"adapters beside 4-bit weights", config});
    list.back().config.model.load_in_4bit = true;
    return list;
  }
  if (config.trainer.optimizer == config::Optimizer::adamw) {
    list.push_back({"states of 8 bits", config});
    list.back().config.trainer.optimizer = config::Optimizer::adamw_8bit;
  }
  list.push_back({"adapters (LoRA) instead of all weights", config});
  list.back().config.lora.enabled = true;
  list.push_back({"adapters beside 4-bit weights", list.back().config});
  list.back().config.model.load_in_4bit = true;
  return list;
}

// The same samples in a step, in smaller micro-batches: trained numbers stay.
std::vector<RunConfig> in_smaller_batches(const RunConfig& config, const config::BatchPlan& batch) {
  std::vector<RunConfig> list;
  for (std::int64_t size = batch.batch_size; size >= 1; --size) {
    if (batch.batch_size % size != 0) continue;
    list.push_back(config);
    if (size == batch.batch_size) continue;
    list.back().trainer.batch_size = size;
    list.back().trainer.gradient_accumulation = batch.gradient_accumulation * (batch.batch_size / size);
  }
  return list;
}

// Every way of holding the same training on these ranks. Fewest changed settings first, then by what a step loses: placements, smaller
// micro-batches, recomputation, the way to host memory and back.
std::vector<RunConfig> ways_of(const RunConfig& config, const config::BatchPlan& batch, int ranks) {
  using config::Recompute;
  std::vector<std::pair<Recompute, bool>> kept{{config.trainer.recompute, config.trainer.offload_checkpoints}};
  for (const auto& [policy, offload] : {std::pair{Recompute::automatic, false}, {Recompute::blocks, false}, {Recompute::blocks, true}})
    if (const std::pair more(policy, offload || config.trainer.offload_checkpoints); std::ranges::find(kept, more) == kept.end())
      kept.push_back(more);
  std::vector<RunConfig> ways;
  for (const auto& [policy, offload] : kept) {
    for (const RunConfig& smaller : in_smaller_batches(config, batch)) {
      for (const PlacementChoice& placement : placements_for(config, ranks)) {
        RunConfig way = smaller;
        way.parallel.shard = placement.shard;
        way.parallel.replicate = placement.replicate;
        way.trainer.recompute = policy;
        way.trainer.offload_checkpoints = offload;
        ways.push_back(std::move(way));
      }
    }
  }
  std::stable_sort(ways.begin(), ways.end(), [&](const RunConfig& a, const RunConfig& b) {
    return settings_between(config, a).size() < settings_between(config, b).size();
  });
  return ways;
}

std::optional<Change> smallest_change(const MemoryPlan& plan, const Training& training, const layout::MemoryWish& wish) {
  config::BatchPlan batch;
  try {
    batch = config::plan_batch(training.config, wish.ranks);
  } catch (const base::UserError&) {
    return std::nullopt;
  }
  for (const RunConfig& way : ways_of(training.config, batch, wish.ranks)) {
    std::optional<RankMemory> memory = memory_with(way, wish);
    if (memory && fits(*memory, wish)) return Change{training.effect, settings_between(plan.config, way), wish.ranks, std::move(*memory)};
  }
  return std::nullopt;
}

std::optional<Change> with_more_ranks(const MemoryPlan& plan, const Training& training) {
  layout::MemoryWish wish = plan.wish;
  for (wish.ranks = plan.wish.ranks + 1; wish.ranks <= kMostRanks; ++wish.ranks) {
    if ((wish.ranks & (wish.ranks - 1)) != 0) continue;  // as people have them
    if (std::optional<Change> change = smallest_change(plan, training, wish)) return change;
  }
  return std::nullopt;
}

std::optional<std::int64_t> largest_batch(const MemoryPlan& plan) {
  RunConfig config = plan.config;
  config.trainer.global_batch_size = 0;
  config.trainer.gradient_accumulation = plan.batch.gradient_accumulation;
  const auto holds = [&](std::int64_t samples) {
    config.trainer.batch_size = samples;
    const std::optional<RankMemory> memory = memory_with(config, plan.wish);
    return memory && fits(*memory, plan.wish);
  };
  if (!holds(1)) return std::nullopt;
  std::int64_t good = std::clamp<std::int64_t>(plan.batch.batch_size, 1, kMostSamples);
  if (good > 1 && !holds(good)) good = 1;
  std::int64_t bad = 2 * good;
  while (bad <= kMostSamples && holds(bad)) good = bad, bad *= 2;
  while (bad - good > 1) {
    const std::int64_t middle = (good + bad) / 2;
    (holds(middle) ? good : bad) = middle;
  }
  return good;
}

}  // namespace

Verdict verdict_of(const RankMemory& memory, std::int64_t device_bytes) {
  std::int64_t estimated = 0;
  for (const layout::PartBytes& one : memory.parts)
    if (!one.exact) estimated += one.bytes;
  if (memory.total() <= device_bytes) return Verdict::fits;
  return memory.total() - estimated / 4 <= device_bytes ? Verdict::tight : Verdict::too_large;
}

std::string PlacementChoice::name() const {
  return replicate == 1 ? std::string(config::name_of(shard)) : fmt::format("{} in {} groups", config::name_of(shard), replicate);
}

std::vector<PlacementChoice> placements_for(const RunConfig& config, int ranks) {
  using enum config::ShardKind;
  const PlacementChoice own{config.parallel.shard, config.parallel.replicate};
  if (ranks == 1) return {own.replicate == 1 ? own : PlacementChoice{none}};  // nothing is cut, whatever it is called
  std::vector<PlacementChoice> list{{none}};
  if (!config.lora.enabled) list.insert(list.end(), {{optimizer}, {gradients}});
  if (constexpr int machine = 8; ranks > machine && ranks % machine == 0) list.push_back({full, ranks / machine});
  list.push_back({full});
  if (std::find(list.begin(), list.end(), own) == list.end() && ranks % own.replicate == 0) list.insert(list.begin(), own);
  return list;
}

Advice advise(const MemoryPlan& plan) {
  base::check(plan.wish.device_bytes.has_value(), "advice is for a known amount of memory");
  Advice advice{.largest_batch = largest_batch(plan), .changes = {}};
  const std::vector<Training> all = trainings(plan.config);
  std::optional<Change> same = smallest_change(plan, all.front(), plan.wish);
  if (!same) {
    if (auto more = with_more_ranks(plan, all.front())) advice.changes.push_back(std::move(*more));
    for (std::size_t i = 1; i < all.size(); ++i)
      if (auto change = smallest_change(plan, all[i], plan.wish)) advice.changes.push_back(std::move(*change));
  } else {
    advice.changes.push_back(std::move(*same));
  }
  return advice;
}

}  // namespace lockstep::plan
