// Batches of several shapes: those that recur are recorded beside each other, and give the bits of those that are not.
#include <ATen/ops/tensor.h>

#include "unit/train/micro_steps_fixture.h"

namespace lockstep::train {
namespace {

TEST(MicroStepShapes, ShapesThatRecurAreRecordedBesideEachOther) {
  const test::Deterministic deterministic;
  for (const std::size_t most_shapes : {1, 16}) {
    Training plain(tiny()), graph(tiny());
    plain.use(nullptr);
    Tally tally;
    graph.use({.recorder = std::make_unique<CountingRecorder>(graph.device, tally), .warm_up = warm_up, .most_shapes = most_shapes});
    int others = 0;
    for (int step = 0; step < steps; ++step) {
      const bool other = step % 4 == 3;  // the short end of an epoch, say
      others += other;
      for (Training* t : {&plain, &graph}) {
        t->step({t->batch(step, other ? 3 : batch_size), t->batch(100 + step)});
        poison_free_memory(t->device);
      }
    }
    expect_same_bits(plain, graph);
    EXPECT_EQ(tally.recorded, most_shapes == 1 ? 2 : 3) << "of the other shape only the one that adds up";
    EXPECT_EQ(tally.launched, 2 * steps - warm_up - (most_shapes == 1 ? others : warm_up));
  }
}

TEST(MicroStepShapes, ShapesThatTakeTurnsAreRecordedOnceEach) {
  const test::Deterministic deterministic;
  Training plain(tiny()), graph(tiny());
  plain.use(nullptr);
  Tally tally;
  graph.use(std::make_unique<CountingRecorder>(graph.device, tally));
  for (int step = 0; step < 2 * steps; ++step)
    for (Training* t : {&plain, &graph}) {
      t->step({t->batch(step, batch_size, 16 + 8 * (step % 3))});
      poison_free_memory(t->device);
    }
  expect_same_bits(plain, graph);
  EXPECT_EQ(tally.recorded, 3);
  EXPECT_EQ(tally.launched, 2 * steps - 3 * warm_up);
}

TEST(MicroStepShapes, AShapeThatIsNotUsedAnyMoreMakesRoom) {
  const test::Deterministic deterministic;
  Training plain(tiny()), graph(tiny());
  plain.use(nullptr);
  Tally tally;
  graph.use({.recorder = std::make_unique<CountingRecorder>(graph.device, tally), .warm_up = warm_up, .most_shapes = 1});
  const int patience = int(GraphPolicy::Options{}.patience);
  for (int step = 0; step < 2 * steps; ++step)
    for (Training* t : {&plain, &graph}) {
      t->step({t->batch(step, batch_size, step < 8 ? 24 : 16)});
      poison_free_memory(t->device);
    }
  expect_same_bits(plain, graph);
  EXPECT_EQ(tally.recorded, 2);
  EXPECT_EQ(tally.launched, 2 * steps - warm_up - patience);
}

TEST(MicroStepShapes, ShapesThatDifferAreRecordedOnlyWhereMemoryHoldsTheLargestTwice) {
  for (const bool large : {false, true}) {
    Training t(tiny());
    Tally tally;
    t.use({.recorder = std::make_unique<CountingRecorder>(t.device, tally),
           .warm_up = warm_up,
           .largest_batch = large ? std::int64_t{1} << 60 : 4 * 24});
    for (int step = 0; step < steps; ++step) t.step({t.batch(step, batch_size, 16 + 8 * (step % 2))});
    EXPECT_EQ(tally.recorded, large ? 0 : 2);
  }
}

TEST(MicroStepShapes, AReductionIsNotRecordedWhereRanksSeeOtherShapes) {
  Training t(tiny());
  Tally tally;
  t.use({.recorder = std::make_unique<CountingRecorder>(t.device, tally), .warm_up = warm_up, .same_shapes = false});
  for (int step = 0; step < steps; ++step) t.step({t.batch(step), t.batch(100 + step)});
  EXPECT_EQ(tally.recorded, 1) << "the one that adds up, which no other rank hears of";
  EXPECT_FALSE(t.micro_steps->replayed());
}

TEST(MicroStepShapes, PackedRecordsAreNeverRecorded) {
  Training t(tiny());
  Tally tally;
  t.use(std::make_unique<CountingRecorder>(t.device, tally));
  for (int step = 0; step < steps; ++step) {
    data::Batch batch = t.batch(step);
    batch.on_host[0] = at::tensor({0, 7 + step % 3, 16, 32, 48, 64}, at::kInt);
    t.step({batch});
  }
  EXPECT_EQ(tally.recorded, 0);
}

}  // namespace
}  // namespace lockstep::train
