// Units that ranks hold in shards, by one placement: which of weights, gradients and optimizer states are whole on every rank and which are
// cut between them. Replicas of a shard lie along the mesh's replicate axis.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <vector>

#include "config/run_config.h"
#include "layout/spread/placement.h"
#include "rank/comm/mesh.h"
#include "rank/parallel/exchange.h"
#include "rank/parallel/gathers.h"
#include "rank/parallel/rank_store.h"
#include "rank/parallel/shard_reduction.h"

namespace lockstep::parallel {

// Trained units of the model are held in shards; frozen ones are too where weights are. Adapters stay whole: they are few.
class ShardedStore final : public RankStore, public Exchange {
 public:
  // slots: by unit, as its weights and its gradients take memory in turns with others.
  struct Slots {
    std::vector<std::optional<std::size_t>> weights, gradients;
  };
  ShardedStore(const std::vector<model::Unit*>& units, const std::vector<model::Unit*>& adapters, const comm::Mesh& mesh,
               const layout::Placement& placement, const Slots& slots, const config::RunConfig& config);

  void open(std::size_t unit, const model::Pass& pass) override;
  void close(std::size_t unit, const model::Pass& pass) override;
  void complete(std::size_t unit, std::size_t leaf) override;
  std::span<const model::HeldSlice> counts() const override { return counts_; }
  std::vector<std::int64_t> cuts(std::size_t unit) const override;
  bool owns(std::size_t unit, std::int64_t begin) const override;
  at::Tensor whole_gradients(std::size_t unit) const override;
  at::Tensor own_share(std::size_t unit, const at::Tensor& whole) const override;
  void look_again() override;

  void updated() override { gathers_.forget(); }
  void final_through(std::size_t unit) override { gathers_.come_early(unit); }
  bool opens_together() const override { return true; }
  void gather(const at::Tensor& whole, const at::Tensor& mine) const override {
    gathers_.group().all_gather(whole, mine, "quantized weights").wait();
  }
  const comm::Group* replicas() const override { return &replicas_; }
  void rehearse(bool on) override;

  void record(const model::Micro& micro, const std::function<void()>& recording) override;
  void settle() override;
  bool replays(const model::Micro& micro) override;
  void replay(const model::Micro& micro, const std::function<void()>& launch) override;

  void arm(const comm::Group&) override { reduction_.arm(); }
  void start_all(const comm::Group&) override { reduction_.start_all(); }
  void replay(const comm::Group& group, const std::function<void()>& launch) override;
  void finish(const comm::Group&) override { reduction_.finish(); }

  const Gathers::Count& gathered() const { return gathers_.count(); }
  const ShardReduction::Count& reduced() const { return reduction_.count(); }

 private:
  struct Books {
    Gathers::Books gathers;
    std::vector<bool> sums;
    Gathers::Count gathered = {};
    ShardReduction::Count reduced = {};
  };
  struct Recorded {
    Books before, after;
  };
  std::optional<Books> books() const;  // between micro-steps
  void set_books(const Books& books);
  void begin_alike(const model::Micro& micro);

  const comm::Group &replicas_, &everyone_, &sharers_;
  std::set<std::pair<std::size_t, std::int64_t>> owned_;  // matrices by unit and first number
  Gathers gathers_;
  ShardReduction reduction_;
  std::map<std::pair<bool, bool>, Recorded> recorded_;  // by first and last
  std::vector<model::HeldSlice> counts_;
};

}  // namespace lockstep::parallel
