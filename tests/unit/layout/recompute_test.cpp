// Policies for layers that are not equal: against all mixes there are.
#include "layout/recompute.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

namespace lockstep::layout {
namespace {

constexpr std::array policies{Recompute::none, Recompute::norms, Recompute::qkv, Recompute::blocks};

std::int64_t taken(const std::vector<LayerCost>& layers, const std::vector<Recompute>& mix) {
  std::int64_t kept = 0, shared = 0;
  for (std::size_t i = 0; i < layers.size(); ++i) {
    kept += layers[i].bytes.kept(mix[i]);
    shared = std::max(shared, layers[i].bytes.shared(mix[i]));
  }
  return kept + shared;
}

double cost(const std::vector<LayerCost>& layers, const std::vector<Recompute>& mix) {
  double sum = 0;
  for (std::size_t i = 0; i < layers.size(); ++i) sum += layers[i].cost(mix[i]);
  return sum;
}

// The cost of the cheapest mix that fits; infinite where none does.
double cheapest(const std::vector<LayerCost>& layers, std::int64_t room) {
  double best = std::numeric_limits<double>::infinity();
  std::vector<Recompute> mix(layers.size());
  const auto all = std::int64_t(std::pow(4, layers.size()));
  for (std::int64_t number = 0; number < all; ++number) {
    for (std::size_t i = 0; i < layers.size(); ++i) mix[i] = policies[std::size_t(number >> (2 * i) & 3)];
    if (taken(layers, mix) <= room) best = std::min(best, cost(layers, mix));
  }
  return best;
}

LayerCost layer(std::int64_t width, double speed) {
  return {{.input = width, .blocks = 5 * width, .qkv = 2 * width, .norms = 3 * width},
          1.0 * double(width) / speed,
          4.0 * double(width) / speed,
          15.0 * double(width) / speed};
}

TEST(CheapestPolicies, OfUnequalLayersFitAndAreNearTheBest) {
  std::mt19937 random(5);
  double ours = 0, best = 0;
  for (int round = 0; round < 200; ++round) {
    std::vector<LayerCost> layers;
    for (int i = 0; i < 5; ++i) layers.push_back(layer(1 + std::int64_t(random() % 9), 1 + double(random() % 5)));
    const std::vector<Recompute> none(5, Recompute::none), blocks(5, Recompute::blocks);
    const std::int64_t least = taken(layers, blocks), most = taken(layers, none);
    const std::int64_t room = least + std::int64_t(random() % std::uint32_t(most - least + 1));
    const std::vector<Recompute> chosen = cheapest_policies(layers, room);
    ASSERT_LE(taken(layers, chosen), room);
    ours += cost(layers, chosen);
    best += cheapest(layers, room);
  }
  EXPECT_LE(ours, 1.1 * best);
}

TEST(CheapestPolicies, OfEqualLayersAreTheBest) {
  const std::vector<LayerCost> layers(5, layer(4, 1));
  for (std::int64_t room = 20; room < 240; room += 7) {
    const std::vector<Recompute> chosen = cheapest_policies(layers, room);
    if (std::isinf(cheapest(layers, room)))
      EXPECT_EQ(chosen, std::vector(5, Recompute::blocks));
    else
      EXPECT_EQ(cost(layers, chosen), cheapest(layers, room)) << room;
  }
}

TEST(CheapestPolicies, NothingFits) {
  EXPECT_EQ(cheapest_policies({layer(4, 1), layer(5, 1)}, 3), std::vector(2, Recompute::blocks));
  EXPECT_EQ(cheapest_policies({layer(4, 1), layer(5, 1)}, 1000), std::vector(2, Recompute::none));
}

}  // namespace
}  // namespace lockstep::layout
