// What moves without a gradient, beside weights that ranks hold in shards: it follows the shards, and comes to what it is beside whole
// ones.
#include <gtest/gtest.h>

#include <ATen/ops/equal.h>
#include <ATen/ops/zeros.h>

#include <cstdlib>

#include "rank/train/train_step.h"
#include "support/ranks/run_ranks.h"
#include "unit/train/micro_steps_fixture.h"

namespace lockstep::train {
namespace {

// An average of what this rank updates.
class AverageOfHeld final : public AfterUpdate {
 public:
  explicit AverageOfHeld(const model::Store& store) : store_(store) {
    for (const model::HeldSlice& slice : store.updates()) averages.push_back(slice.exact.clone());
  }
  void follow(const StepOutcome&) override {
    for (std::size_t i = 0; i < averages.size(); ++i) averages[i].lerp_(store_.updates()[i].exact, 0.25);
  }
  std::vector<at::Tensor> averages;

 private:
  const model::Store& store_;
};

// Of every unit, all of it: what ranks hold, added up where each holds a part.
at::Tensor averaged_over(const comm::Group& ranks, config::ShardKind shard, std::int64_t replicate) {
  ::setenv("TORCHELASTIC_USE_AGENT_STORE", "1", 1);  // over the store that the ranks' own world serves
  ::setenv("LOCKSTEP_RUN_KEY", fmt::format("{} {}", config::name_of(shard), replicate).c_str(), 1);
  RunRequest request{.config = tiny(), .place = comm::place_from_environment(), .page = std::make_shared<journal::PageWriter>("", 0)};
  request.config.trainer.batch_size = 1;
  request.config.trainer.max_steps = 3;
  request.config.parallel.shard = shard;
  request.config.parallel.replicate = replicate;
  const auto run = build_run(request);
  auto mover = std::make_unique<AverageOfHeld>(*run->replica.store);
  const AverageOfHeld& followed = *mover;
  run->after_update.push_back(std::move(mover));
  for (int step = 0; step < 3; ++step) train_step(*run);

  const model::Store& store = *run->replica.store;
  std::vector<std::int64_t> begins{0};
  for (std::size_t unit = 0; unit < store.units(); ++unit) begins.push_back(begins.back() + store.flat(unit).elements);
  const at::Tensor all = at::zeros({begins.back()});
  const bool first = shard == config::ShardKind::none ? ranks.rank() == 0 : run->mesh->along(layout::Axis::replicate).rank() == 0;
  for (std::size_t i = 0; first && i < followed.averages.size(); ++i) {
    const model::HeldSlice& slice = store.updates()[i];
    all.narrow(0, begins[slice.unit] + slice.begin, slice.count).copy_(followed.averages[i]);
  }
  ranks.all_reduce(all, comm::Reduce::sum, "averages").wait();
  return all;
}

TEST(Hooks, AveragesOfShardsAreThoseOfWholeWeights) {
  testing::run_ranks(4, config::Backend::gloo, [](comm::World& world) -> std::vector<double> {
    using enum config::ShardKind;
    const at::Tensor whole = averaged_over(world.everyone(), none, 1);
    EXPECT_GT(whole.abs().max().item<float>(), 0);
    for (const auto kind : {optimizer, gradients, full}) EXPECT_TRUE(at::equal(averaged_over(world.everyone(), kind, 1), whole));
    const at::Tensor hybrid = averaged_over(world.everyone(), full, 2);  // sums in another order
    EXPECT_LT(hybrid.sub(whole).abs().max().item<float>(), 1e-5);
    return {};
  });
}

}  // namespace
}  // namespace lockstep::train
