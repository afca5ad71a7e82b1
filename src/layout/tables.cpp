// Made from the settings, then looked at rank by rank.
#include "layout/tables.h"

#include <fmt/format.h>

#include <set>

#include "base/error.h"
#include "base/text.h"
#include "layout/decoder.h"
#include "layout/memory/memory.h"
#include "layout/memory/step_memory.h"

namespace lockstep::layout {
namespace {

// Each rank is in one group along the axes, and its group says the same of every member.
std::string wrong_with_groups(const MeshShape& mesh, std::span<const Axis> axes, std::string_view name) {
  std::set<int> met;
  for (int rank = 0; rank < mesh.ranks(); ++rank) {
    const std::vector<int> members = mesh.members(rank, axes);
    if (std::find(members.begin(), members.end(), rank) == members.end())
      return fmt::format("rank {} is not in its own {} group", rank, name);
    if (members.front() != rank) continue;
    for (const int member : members) {
      if (!met.insert(member).second) return fmt::format("rank {} is in two {} groups", member, name);
      if (mesh.members(member, axes) != members) return fmt::format("ranks {} and {} disagree about their {} group", rank, member, name);
    }
  }
  return met.size() == std::size_t(mesh.ranks()) ? "" : fmt::format("a rank is in no {} group", name);
}

// The ranks of one group hold all of every unit between them, and nothing twice.
std::string wrong_with_cuts(const std::vector<UnitCut>& units, int sharers) {
  std::vector<std::int64_t> elements;
  for (const UnitCut& unit : units) elements.push_back(unit.elements);
  return uncovered(elements, shards_by_rank(units, sharers));
}

// "0-7", "0, 8, ..., 504"
std::string in_words(const std::vector<int>& ranks) {
  if (ranks.size() == 1) return std::to_string(ranks.front());
  if (ranks.back() - ranks.front() + 1 == int(ranks.size())) return fmt::format("{}-{}", ranks.front(), ranks.back());
  if (ranks.size() <= 4) return fmt::format("{}", fmt::join(ranks, ", "));
  return fmt::format("{}, {}, ..., {}", ranks[0], ranks[1], ranks.back());
}

}  // namespace

MeshShape mesh_of(const config::RunConfig& config, int ranks) {
  const int groups = static_cast<int>(config.parallel.replicate);
  if (config.parallel.shard != config::ShardKind::none && ranks % groups != 0)
    throw base::usage_error("parallel",
                            "parallel.replicate = {} groups of ranks cannot be made of {} rank{}: each has as many as the others.", groups,
                            ranks, ranks == 1 ? "" : "s");
  const int sharers = sharing_ranks(config, ranks);
  return {{Axis::replicate, ranks / sharers}, {Axis::shard, sharers}};
}

Tables tables_of(const config::RunConfig& config, std::int64_t micro_batches, int ranks, std::optional<GradientForm> form) {
  Tables tables{.mesh = mesh_of(config, ranks),
                .placement = placement_of(config),
                .trained = !config.lora.enabled,
                .schedule = plain_schedule(micro_batches)};
  const int sharers = tables.mesh.along(Axis::shard), replicas = tables.mesh.along(Axis::replicate);
  if (sharers == 1) return tables;
  const std::int64_t wire = wire_bytes(config, form.value_or(widest_form(config, micro_batches)));
  std::vector<UnitBytes> bytes;
  Traffic between;
  for (const UnitSpec& unit : decoder_units(config.model)) {
    const UnitCut cut = cut_of(unit, model_holding(config), config.trainer.optimizer, sharers);
    const std::int64_t received = cut.room * (sharers - 1);
    bytes.push_back({received * cut.element_bytes, cut.packed ? 0 : received * wire});
    tables.units.push_back(cut);
    if (replicas == 1 || !tables.trained) continue;
    between.exchanges += 1;
    between.exchanged_bytes += std::int64_t{2} * (replicas - 1) * cut.room * wire / replicas;
  }
  tables.moves = gather_table(tables.schedule, {bytes.size(), tables.trained}, tables.placement);
  tables.traffic = traffic_of(tables.moves, bytes);
  tables.traffic.exchanges = between.exchanges;
  tables.traffic.exchanged_bytes = between.exchanged_bytes;
  return tables;
}

std::string wrong_with(const Tables& tables) {
  const std::int64_t micro_batches = std::int64_t(tables.schedule.size()) / 2;
  if (std::string wrong = wrong_with(tables.schedule, micro_batches, micro_batches); !wrong.empty()) return wrong;
  const auto groups = [&](std::span<const Axis> axes, std::string_view name) { return wrong_with_groups(tables.mesh, axes, name); };
  for (const Axis axis : {Axis::replicate, Axis::shard})
    if (std::string wrong = groups(std::array{axis}, name_of(axis)); !wrong.empty()) return wrong;
  if (std::string wrong = groups(data_axes, "data"); !wrong.empty()) return wrong;
  if (tables.units.empty()) return "";
  if (std::string wrong = wrong_with_cuts(tables.units, tables.mesh.along(Axis::shard)); !wrong.empty()) return wrong;
  return wrong_with(tables.moves, tables.schedule, {tables.units.size(), tables.trained}, tables.placement);
}

std::string groups_of(const Tables& tables, int rank) {
  std::vector<std::string> groups;
  const auto add = [&](std::span<const Axis> axes, std::string_view name) {
    const std::vector<int> members = tables.mesh.members(rank, axes);
    if (members.size() > 1) groups.push_back(fmt::format("{} {}", name, in_words(members)));
  };
  add(data_axes, "data");
  for (const Axis axis : {Axis::shard, Axis::replicate}) add(std::array{axis}, name_of(axis));
  return base::join(groups, "; ");
}

}  // namespace lockstep::layout
