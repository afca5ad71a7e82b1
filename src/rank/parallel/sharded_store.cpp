// Hands what layers say on to gathers and reductions.
#include "rank/parallel/sharded_store.h"

#include "base/error.h"
#include "rank/parallel/rank_order_sum.h"
#include "rank/parallel/replicated_store.h"

namespace lockstep::parallel {
namespace {

enum class Which { all, trained };

// Those that are held in shards, with their slots.
std::vector<std::optional<CutUnit>> cut_units(const std::vector<model::Unit*>& units, const std::vector<std::optional<std::size_t>>& slots,
                                              Which which) {
  std::vector<std::optional<CutUnit>> list(units.size());
  for (std::size_t i = 0; i < units.size(); ++i)
    if (units[i]->shard() && (which == Which::all || units[i]->trainable())) list[i] = CutUnit{units[i], slots[i]};
  return list;
}

}  // namespace

ShardedStore::ShardedStore(const std::vector<model::Unit*>& units, const std::vector<model::Unit*>& adapters, const comm::Mesh& mesh,
                           const layout::Placement& placement, const Slots& slots, const config::ParallelConfig& options)
    : RankStore(units, adapters),
      replicas_(mesh.along(layout::Axis::replicate)),
      everyone_(mesh.everyone()),
      sharers_(mesh.reductions()),
      gathers_(mesh.gathers(), cut_units(units, slots.weights, Which::all)),
      reduction_({mesh.reductions(), replicas_}, cut_units(units, slots.gradients, Which::trained), options,
                 /*every_micro_batch=*/placement.gradients != layout::Spread::whole) {
  std::vector<model::UnitSpec> specs;
  for (const model::Unit* unit : units) specs.push_back(unit->spec());
  const auto by_rank = layout::owned_by_rank(layout::placed_units(specs), sharers_.size());
  for (const layout::Slice& slice : by_rank[static_cast<std::size_t>(sharers_.rank())]) owned_.emplace(slice.unit, slice.begin);
  look_again();
}

bool ShardedStore::owns(std::size_t unit, std::int64_t begin) const {
  const model::Unit& held = this->unit(unit);
  if (!held.shard()) return true;
  return cuts(unit).empty() ? held.held_count() == held.elements() : owned_.contains({unit, begin});
}

at::Tensor ShardedStore::whole_gradients(std::size_t unit) const {
  const model::Unit& held = this->unit(unit);
  if (!held.shard()) return held.gradients();
  const at::Tensor& mine = held.summed_gradients();
  const at::Tensor whole = at::empty({mine.numel() * sharers_.size()}, mine.options());
  sharers_.all_gather(whole, mine, fmt::format("gradients of {} for its matrices", held.name())).wait();
  return whole;
}

at::Tensor ShardedStore::own_share(std::size_t unit, const at::Tensor& whole) const {
  const model::Unit& held = this->unit(unit);
  if (!held.shard()) return whole;
  const at::Tensor mine = at::empty({held.shard()->room}, whole.options());
  reduce_in_rank_order(sharers_, mine, whole, fmt::format("updates of {}", held.name())).wait();
  return mine.narrow(0, 0, held.held_count());
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
