// Whole steps of a run that writes nothing: what they sum under names, and what follows the update.
#include "rank/train/train_step.h"

#include <ATen/ops/allclose.h>
#include <ATen/ops/equal.h>

#include "unit/train/micro_steps_fixture.h"

namespace lockstep::train {
namespace {

std::unique_ptr<Run> make_run(const std::function<void(config::RunConfig&)>& change = [](config::RunConfig&) {}) {
  RunRequest request{.config = tiny(), .device = test::device(), .page = std::make_shared<journal::PageWriter>("", 0)};
  request.config.trainer.batch_size = batch_size;
  request.config.trainer.gradient_accumulation = 2;
  request.config.trainer.max_steps = steps;
  request.config.trainer.learning_rate = 1e-2;
  change(request.config);
  return build_run(request);
}

// An average of one unit's weights, as it is kept beside training.
class Average final : public AfterUpdate {
 public:
  explicit Average(const model::Unit& unit) : average(unit.exact().clone()), unit_(unit) {}
  void follow(const StepOutcome& outcome) override {
    average.lerp_(unit_.exact(), 0.25);
    seen.push_back(outcome.step);
  }
  at::Tensor average;
  std::vector<std::int64_t> seen;

 private:
  const model::Unit& unit_;
};

TEST(TrainStep, WhatMovesWithoutAGradientFollowsEveryUpdate) {
  const auto run = make_run();
  const model::Unit& unit = *run->replica.units[1];
  auto mover = std::make_unique<Average>(unit);
  const Average& followed = *mover;
  run->after_update.push_back(std::move(mover));
  at::Tensor expected = unit.exact().clone(), before = expected;
  for (int step = 0; step < 3; ++step) {
    train_step(*run);
    EXPECT_FALSE(at::equal(unit.exact(), before)) << "the update moves weights";
    before = unit.exact().clone();
    expected = expected.lerp(before, 0.25);
    EXPECT_TRUE(at::allclose(followed.average, expected, 1e-6, 1e-7)) << "step " << step;
  }
  EXPECT_EQ(followed.seen, (std::vector<std::int64_t>{1, 2, 3}));
}

TEST(TrainStep, TotalsHoldWhatAStepTrained) {
  const auto run = make_run();
  const StepOutcome outcome = train_step(*run);
  const at::Tensor host = outcome.totals.cpu();
  const std::span<const double> numbers(host.const_data_ptr<double>(), std::size_t(host.numel()));
  const double trained = run->totals->read(numbers, sum::trained);
  EXPECT_EQ(trained, 2 * batch_size * time_steps);
  EXPECT_NEAR(run->totals->read(numbers, sum::loss) / trained, std::log(double(run->config.model.vocab_size)), 0.5);
  EXPECT_EQ(run->totals->read(numbers, sum::not_finite), 0);
  EXPECT_EQ(wishes_in(run->totals->read(numbers, sum::wishes)), 0u);
  EXPECT_EQ(outcome.samples.size(), std::size_t(2 * batch_size));
}

}  // namespace
}  // namespace lockstep::train
