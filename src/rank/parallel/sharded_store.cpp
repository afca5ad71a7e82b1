// Hands what layers say on to gathers and reductions.
#include "rank/parallel/sharded_store.h"

#include "base/error.h"
#include "rank/parallel/replicated_store.h"

namespace lockstep::parallel {
namespace {

std::vector<std::optional<GatheredUnit>> in_shards(const std::vector<model::Unit*>& units,
                                                   const std::vector<std::optional<std::size_t>>& slots) {
  std::vector<std::optional<GatheredUnit>> list(units.size());
  for (std::size_t i = 0; i < units.size(); ++i)
    if (units[i]->shard()) list[i] = GatheredUnit{units[i], slots[i]};
  return list;
}

std::vector<std::optional<ReducedUnit>> trained_in_shards(const std::vector<model::Unit*>& units,
                                                          const std::vector<std::optional<std::size_t>>& slots) {
  std::vector<std::optional<ReducedUnit>> list(units.size());
  for (std::size_t i = 0; i < units.size(); ++i)
    if (units[i]->shard() && units[i]->trainable()) list[i] = ReducedUnit{units[i], slots[i]};
  return list;
}

}  // namespace

ShardedStore::ShardedStore(const std::vector<model::Unit*>& units, const std::vector<model::Unit*>& adapters, const comm::Mesh& mesh,
                           const layout::Placement& placement, const Slots& slots, const config::ParallelConfig& options)
    : RankStore(units, adapters),
      replicas_(mesh.along(layout::Axis::replicate)),
      everyone_(mesh.everyone()),
      gathers_(mesh.gathers(), in_shards(units, slots.weights)),
      reduction_({mesh.reductions(), replicas_}, trained_in_shards(units, slots.gradients), options,
                 /*every_micro_batch=*/placement.gradients != layout::Spread::whole) {
  look_again();
}

// Of the replicas of a shard the first one counts it; whole units are dealt out to all ranks.
void ShardedStore::look_again() {
  WholeStore::look_again();
  counts_.clear();
  std::vector<model::HeldSlice> whole;
  for (const model::HeldSlice& slice : updates()) {
    if (!unit(slice.unit).shard())
      whole.push_back(slice);
    else if (replicas_.rank() == 0 && slice.count > 0)
      counts_.push_back(slice);
  }
  const std::vector<model::HeldSlice> mine = dealt_out(whole, everyone_.rank(), everyone_.size());
  counts_.insert(counts_.end(), mine.begin(), mine.end());
}

std::vector<std::int64_t> ShardedStore::cuts(std::size_t unit) const {
  std::vector<std::int64_t> cuts;
  const model::Unit& held = this->unit(unit);
  if (!held.shard()) return cuts;
  for (std::int64_t cut = held.shard()->room; cut < held.elements(); cut += held.shard()->room) cuts.push_back(cut);
  return cuts;
}

void ShardedStore::open(std::size_t unit, const model::Pass& pass) {
  if (!this->unit(unit).shard()) return;
  gathers_.open(unit, pass.direction);
  reduction_.open(unit, pass);
}

void ShardedStore::close(std::size_t unit, const model::Pass& pass) {
  if (!this->unit(unit).shard()) return;
  reduction_.close(unit, pass);
  gathers_.close(unit);
}

void ShardedStore::complete(std::size_t unit, std::size_t leaf) {
  this->unit(unit).shard() ? reduction_.complete(unit, leaf) : WholeStore::complete(unit, leaf);
}

void ShardedStore::rehearse(bool on) {
  gathers_.rehearse(on);
  reduction_.rehearse(on);
}

void ShardedStore::replay(const comm::Group&, const std::function<void()>&) { throw base::Bug("micro-steps over shards are not recorded"); }

}  // namespace lockstep::parallel
