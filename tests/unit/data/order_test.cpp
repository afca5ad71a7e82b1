// The global order is a permutation for every size, differs between epochs and seeds, and looks random.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "rank/data/data.h"

namespace lockstep::data {
namespace {

std::vector<std::int64_t> all(std::int64_t samples, std::int64_t seed, std::int64_t epoch, bool shuffle = true) {
  const Order order(samples, seed, epoch, shuffle);
  std::vector<std::int64_t> positions;
  for (std::int64_t i = 0; i < samples; ++i) positions.push_back(order.sample_at(i));
  return positions;
}

TEST(Order, IsAPermutationOfEverySize) {
  for (const std::int64_t samples :
       {1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 64, 97, 100, 127, 128, 129, 255, 256, 257, 1000, 1021, 4096, 65537, 100003}) {
    for (const std::int64_t epoch : {0, 1, 5}) {
      auto order = all(samples, 42, epoch);
      std::sort(order.begin(), order.end());
      for (std::int64_t i = 0; i < samples; ++i) ASSERT_EQ(order[static_cast<std::size_t>(i)], i) << samples << " samples, epoch " << epoch;
    }
  }
}

TEST(Order, WithoutShuffleIsTheIdentity) {
  for (std::int64_t i = 0; const std::int64_t sample : all(100, 1, 2, false)) EXPECT_EQ(sample, i++);
}

TEST(Order, DiffersBetweenSeedsAndEpochs) {
  EXPECT_EQ(all(1000, 1, 0), all(1000, 1, 0));
  EXPECT_NE(all(1000, 1, 0), all(1000, 1, 1));
  EXPECT_NE(all(1000, 1, 0), all(1000, 2, 0));
  EXPECT_NE(all(1000, 1, 1), all(1000, 2, 0));
}

// A random permutation of n has about one fixed point, one pair of neighbors that stay neighbors, and no drift of positions.
TEST(Order, LooksRandom) {
  for (const std::int64_t samples : {200, 1024, 5000, 40000}) {
    double fixed = 0, neighbors = 0, correlation = 0;
    constexpr int epochs = 20;
    const double middle = static_cast<double>(samples - 1) / 2, variance = static_cast<double>(samples * samples - 1) / 12;
    for (int epoch = 0; epoch < epochs; ++epoch) {
      const auto order = all(samples, 9, epoch);
      for (std::size_t i = 0; i < order.size(); ++i) {
        fixed += order[i] == static_cast<std::int64_t>(i);
        if (i > 0) neighbors += order[i] == order[i - 1] + 1;
        correlation +=
            (static_cast<double>(i) - middle) * (static_cast<double>(order[i]) - middle) / variance / static_cast<double>(samples) / epochs;
      }
    }
    EXPECT_LT(fixed / epochs, 3) << samples;
    EXPECT_LT(neighbors / epochs, 3) << samples;
    EXPECT_LT(std::abs(correlation), 4 / std::sqrt(static_cast<double>(samples) * epochs)) << samples;
  }
}

// Where the first sample of an epoch lands is spread evenly over epochs: chi-square against its 99.9th percentile.
TEST(Order, FirstSampleIsSpreadEvenly) {
  for (const std::int64_t samples : {10, 16, 50}) {
    std::vector<double> counts(static_cast<std::size_t>(samples));
    const int epochs = 4000;
    for (int epoch = 0; epoch < epochs; ++epoch) counts[static_cast<std::size_t>(Order(samples, 3, epoch, true).sample_at(0))] += 1;
    const double expected = static_cast<double>(epochs) / static_cast<double>(samples);
    double chi = 0;
    for (const double count : counts) chi += (count - expected) * (count - expected) / expected;
    const double freedom = static_cast<double>(samples - 1);
    EXPECT_LT(chi, freedom + 3.1 * std::sqrt(2 * freedom) + 6) << samples;
  }
}

}  // namespace
}  // namespace lockstep::data
