// Steps that the epochs asked for take: the same as the loader's from any place, at any batch size.
#include "rank/train/resume/epochs.h"

#include <gtest/gtest.h>

namespace lockstep::train {
namespace {

// Walks as the loader does: batches from `position` on, short ones at the end of an epoch.
std::int64_t walk(const Epochs& epochs, data::Position position, double end) {
  std::int64_t steps = 0;
  const auto reached = [&] { return static_cast<double>(position.epoch) + double(position.sample) / double(epochs.samples); };
  while (reached() < end - 1e-9) {
    position.sample += epochs.global_batch;
    if (position.sample >= epochs.samples) position = {position.epoch + 1, 0};
    ++steps;
  }
  return steps;
}

TEST(Epochs, FromTheBeginningAsEver) {
  EXPECT_EQ((Epochs{1, 120, 6}.steps()), 20);
  EXPECT_EQ((Epochs{2.5, 100, 12}.steps()), 23);  // 9 steps an epoch
  EXPECT_EQ((Epochs{1e6, 1ll << 40, 1}.steps()), 1'000'000ll << 40);
}

TEST(Epochs, WhatIsLeftIsCountedInSamples) {
  EXPECT_EQ((Epochs{1, 120, 3}.steps_left({0, 60})), 20) << "half the epoch at half the batch";
  EXPECT_EQ((Epochs{1, 120, 3}.steps_behind({0, 60})), 20);
  for (const std::int64_t samples : {100, 120, 7}) {
    for (const std::int64_t batch : {1, 3, 8, 12, 200}) {
      for (const double asked : {1.0, 3.0}) {
        const Epochs epochs{asked, samples, batch};
        for (std::int64_t epoch = 0; epoch < 4; ++epoch) {
          for (std::int64_t sample = 0; sample < samples; sample += 5) {
            EXPECT_EQ(epochs.steps_left({epoch, sample}), walk(epochs, {epoch, sample}, asked))
                << samples << " samples, batch " << batch << ", epoch " << epoch << ", sample " << sample;
          }
        }
      }
    }
  }
}

TEST(Epochs, AtAnUnchangedBatchStepsAndPositionAgree) {
  for (const double asked : {0.3, 1.0, 2.5}) {
    const Epochs epochs{asked, 100, 12};
    data::Position position;
    for (std::int64_t step = 0; step < epochs.steps(); ++step) {
      EXPECT_EQ(epochs.steps_behind(position), step);
      EXPECT_EQ(step + epochs.steps_left(position), epochs.steps());
      position.sample += 12;
      if (position.sample >= 100) position = {position.epoch + 1, 0};
    }
  }
}

}  // namespace
}  // namespace lockstep::train
