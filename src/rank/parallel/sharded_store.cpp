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
                           const layout::Placement& placement, const Slots& slots, const config::RunConfig& config)
    : RankStore(units, adapters),
      replicas_(mesh.along(layout::Axis::replicate)),
      everyone_(mesh.everyone()),
      sharers_(mesh.reductions()),
      gathers_(mesh.gathers(), cut_units(units, slots.weights, Which::all)),
      reduction_({mesh.reductions(), replicas_}, cut_units(units, slots.gradients, Which::trained), config.parallel,
                 /*every_micro_batch=*/placement.gradients != layout::Spread::whole) {
  std::vector<model::UnitSpec> specs;
  for (const model::Unit* unit : units) specs.push_back(unit->spec());
  const auto by_rank = layout::dealt_by_rank(layout::whole_pieces(specs, config.trainer.optimizer), sharers_.size());
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

void ShardedStore::replay(const comm::Group&, const std::function<void()>& launch) { launch(); }

void ShardedStore::settle() {
  gathers_.settle();
  reduction_.settle_all();
}

std::optional<ShardedStore::Books> ShardedStore::books() const {
  auto gathers = gathers_.books();
  auto sums = reduction_.books();
  if (!gathers || !sums) return std::nullopt;
  return Books{std::move(*gathers), std::move(*sums), gathers_.count(), reduction_.count()};
}

void ShardedStore::set_books(const Books& books) {
  gathers_.set_books(books.gathers);
  reduction_.set_books(books.sums);
}

// The first micro-step of a step finds what an update leaves, whatever an evaluation has opened since.
void ShardedStore::begin_alike(const model::Micro& micro) {
  settle();
  if (micro.first) gathers_.begin_step();
}

void ShardedStore::record(const model::Micro& micro, const std::function<void()>& recording) {
  begin_alike(micro);
  const std::optional<Books> before = books();
  base::check(before.has_value(), "a recording begins between micro-steps");
  {
    const comm::Group::Recording gathers(gathers_.group()), sums(sharers_), between(replicas_);
    recording();
  }
  // One that failed ended in the middle of something.
  if (auto after = books()) recorded_[{micro.first, micro.last}] = {*before, std::move(*after)};
  set_books(*before);
  gathers_.set_count(before->gathered);
  reduction_.set_count(before->reduced);
}

bool ShardedStore::replays(const model::Micro& micro) {
  const auto found = recorded_.find({micro.first, micro.last});
  if (found == recorded_.end()) return false;
  begin_alike(micro);
  const std::optional<Books> now = books();
  return now && now->gathers == found->second.before.gathers && now->sums == found->second.before.sums;
}

void ShardedStore::replay(const model::Micro& micro, const std::function<void()>& launch) {
  const auto& [before, after] = recorded_.at({micro.first, micro.last});
  Gathers::Count gathered = gathers_.count();
  ShardReduction::Count reduced = reduction_.count();
  gathers_.group().replay(unit(0).weights(), "a micro-step over shards", launch).wait();
  gathered.gathers += after.gathered.gathers - before.gathered.gathers;
  gathered.bytes += after.gathered.bytes - before.gathered.bytes;
  reduced.reductions += after.reduced.reductions - before.reduced.reductions;
  reduced.bytes += after.reduced.bytes - before.reduced.bytes;
  set_books(after);
  gathers_.set_count(gathered);
  reduction_.set_count(reduced);
}

}  // namespace lockstep::parallel
