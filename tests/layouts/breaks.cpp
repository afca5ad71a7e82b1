// Stands between layers and the real store, and does one thing wrong.
#include "layouts/breaks.h"

#include <ATen/ops/roll.h>
#include <c10/util/Exception.h>

#include <map>
#include <set>

#include "base/error.h"
#include "rank/parallel/rank_store.h"

namespace lockstep::layouts {
namespace {

constexpr std::size_t victim = 2;  // a block in the middle: it takes its slot in turns with others

// Behind it is padding.
std::int64_t end_of(const model::Unit& unit) {
  const std::size_t last = unit.spec().leaves.size() - 1;
  return unit.offset(last) + unit.spec().leaves[last].elements();
}

class BrokenStore final : public parallel::RankStore {
 public:
  BrokenStore(std::unique_ptr<parallel::RankStore> inner, const parallel::Replica& replica, Break rule, int rank)
      : RankStore(replica.in_forward_order(), replica.adapters_in_forward_order()), inner_(std::move(inner)), rule_(rule), rank_(rank) {
    look_again();
  }

  void open(std::size_t unit, const model::Pass& pass) override {
    inner_->open(unit, pass);
    const auto layer_of_trial = pass.direction == model::Pass::Direction::forward ? victim : victim - 1;
    if (rule_ == Break::nothing_but_short && rehearsing_ && unit == layer_of_trial && trials_ <= 2 && short_in(pass))
      throw c10::OutOfMemoryError({__func__, __FILE__, __LINE__}, "nothing is left, says a test");
    if (unit == victim && this->unit(unit).shard()) spoil_weights(this->unit(unit));
  }

  void close(std::size_t unit, const model::Pass& pass) override {
    const bool head_is_done = unit + 1 == model_units().size() && pass.direction == model::Pass::Direction::backward;
    if (rule_ == Break::drop_the_tied_gradient && head_is_done) this->unit(0).gradients().zero_();
    inner_->close(unit, pass);
  }

  void complete(std::size_t unit, std::size_t leaf) override {
    std::set<std::size_t>& ready = ready_[unit];
    ready.insert(leaf);
    if (ready.size() == spec(unit).leaves.size()) {
      ready.clear();
      if (unit == victim) spoil_gradients(this->unit(unit));
    }
    this->unit(unit).shard() ? inner_->complete(unit, leaf) : WholeStore::complete(unit, leaf);  // adapters' listener is this store's
  }

  std::span<const model::HeldSlice> counts() const override {
    return rule_ == Break::count_a_slice_twice ? updates() : inner_->counts();  // replicas of a shard each count it
  }
  std::vector<std::int64_t> cuts(std::size_t unit) const override { return inner_->cuts(unit); }
  bool owns(std::size_t unit, std::int64_t begin) const override { return inner_->owns(unit, begin); }
  at::Tensor whole_gradients(std::size_t unit) const override { return inner_->whole_gradients(unit); }
  at::Tensor own_share(std::size_t unit, const at::Tensor& whole) const override { return inner_->own_share(unit, whole); }
  bool opens_together() const override { return inner_->opens_together(); }
  void look_again() override {
    WholeStore::look_again();
    inner_->look_again();
  }
  void updated() override {
    inner_->updated();
    if (rule_ != Break::gather_before_update) return;
    inner_->final_through(units());
    inner_->settle();
  }
  void final_through(std::size_t unit) override { inner_->final_through(unit); }
  void rehearse(bool on) override {
    rehearsing_ = on;
    trials_ += on;
    inner_->rehearse(on);
  }
  void gather(const at::Tensor& whole, const at::Tensor& mine) const override { inner_->gather(whole, mine); }

 private:
  void spoil_weights(const model::Unit& unit) {
    const at::Tensor& whole = unit.gathered_weights();
    const std::int64_t room = unit.shard()->room;
    switch (rule_) {
      case Break::shift_a_slice: {
        const at::Tensor second = whole.narrow(0, room, room);
        return static_cast<void>(second.copy_(at::roll(second, 1)));
      }
      case Break::use_a_stale_slot:
        if (!stale_.defined()) stale_ = whole.clone();
        return static_cast<void>(whole.copy_(stale_));
      case Break::forget_the_last_bytes: return static_cast<void>(unit.weights().narrow(0, end_of(unit) - 16, 16).zero_());
      default: return;
    }
  }

  void spoil_gradients(const model::Unit& unit) const {
    switch (rule_) {
      case Break::skip_a_reduction:
        if (rank_ != 0) unit.gradients().zero_();
        return;
      case Break::scale_by_ranks: return static_cast<void>(unit.gradients().div_(unit.shard()->ranks));
      case Break::pad_with_garbage: {
        const std::int64_t end = end_of(unit);
        base::check(end < unit.elements(), "a unit that is broken so has padding");
        return static_cast<void>(unit.gradients().narrow(0, end, unit.elements() - end).fill_(3));
      }
      default: return;
    }
  }

  // The first trial goes to its backward, the second ends in its forward.
  bool short_in(const model::Pass& pass) const { return (pass.direction == model::Pass::Direction::backward) == (trials_ == 1); }

  std::unique_ptr<parallel::RankStore> inner_;
  Break rule_;
  int rank_;
  bool rehearsing_ = false;
  int trials_ = 0;
  std::map<std::size_t, std::set<std::size_t>> ready_;  // leaves of this micro-batch
  at::Tensor stale_;
};

}  // namespace

std::string_view name_of(Break rule) {
  switch (rule) {
    case Break::none: return "nothing";
    case Break::skip_a_reduction: return "skip a reduction";
    case Break::scale_by_ranks: return "scale by ranks";
    case Break::drop_the_tied_gradient: return "drop the tied gradient";
    case Break::pad_with_garbage: return "pad with garbage";
    case Break::count_a_slice_twice: return "count a slice twice";
    case Break::shift_a_slice: return "shift a slice by one element";
    case Break::use_a_stale_slot: return "use a stale slot";
    case Break::gather_before_update: return "gather before the update";
    case Break::forget_the_last_bytes: return "forget a unit's last bytes";
    case Break::nothing_but_replay: return "nothing, replayed";
    case Break::nothing_but_short: return "nothing, short of memory";
  }
  throw base::Bug("a rule that has no name");
}

void break_store(parallel::Replica& replica, Break rule, int rank) {
  if (rule == Break::none || rule == Break::nothing_but_replay) return;
  auto inner = std::move(replica.store);
  replica.store = std::make_unique<BrokenStore>(std::move(inner), replica, rule, rank);
}

}  // namespace lockstep::layouts
