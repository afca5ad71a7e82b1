// The rules that choose a token, on scores small enough to check by hand. tests/parity compares them with transformers.
#include <ATen/TensorOperators.h>
#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "rank/task/language/sampling.h"

namespace lockstep::task {
namespace {

at::Tensor scores_of(const std::vector<double>& shares) {  // logits whose softmax is these
  std::vector<float> scores;
  for (const double share : shares) scores.push_back(float(std::log(share)));
  return at::tensor(scores, at::kFloat).unsqueeze(0);
}

// Which tokens stay.
std::vector<std::int64_t> kept(const std::vector<double>& shares, Sampling sampling) {
  const at::Tensor warped = warp(scores_of(shares), sampling);
  std::vector<std::int64_t> stay;
  for (std::int64_t i = 0; i < warped.size(1); ++i)
    if (std::isfinite(warped[0][i].item<double>())) stay.push_back(i);
  return stay;
}

using Kept = std::vector<std::int64_t>;
const std::vector<double> shares = {0.1, 0.4, 0.2, 0.3};

TEST(Sampling, TopK) {
  EXPECT_EQ(kept(shares, {.temperature = 1, .top_k = 2}), (Kept{1, 3}));
  EXPECT_EQ(kept(shares, {.temperature = 1, .top_k = 1}), (Kept{1}));
  EXPECT_EQ(kept(shares, {.temperature = 1, .top_k = 0}), (Kept{0, 1, 2, 3}));
  EXPECT_EQ(kept(shares, {.temperature = 1, .top_k = 9}), (Kept{0, 1, 2, 3}));
  EXPECT_EQ(kept({0.25, 0.25, 0.25, 0.25}, {.temperature = 1, .top_k = 2}), (Kept{0, 1, 2, 3})) << "equals stand together";
}

TEST(Sampling, TopP) {
  EXPECT_EQ(kept(shares, {.temperature = 1, .top_p = 0.65}), (Kept{1, 3}));
  EXPECT_EQ(kept(shares, {.temperature = 1, .top_p = 0.75}), (Kept{1, 2, 3}));
  EXPECT_EQ(kept(shares, {.temperature = 1, .top_p = 1e-6}), (Kept{1})) << "one always stays";
  EXPECT_EQ(kept(shares, {.temperature = 1, .top_p = 1}), (Kept{0, 1, 2, 3}));
}

TEST(Sampling, MinP) {
  EXPECT_EQ(kept(shares, {.temperature = 1, .min_p = 0.6}), (Kept{1, 3}));
  EXPECT_EQ(kept(shares, {.temperature = 1, .min_p = 0.2}), (Kept{0, 1, 2, 3}));
  EXPECT_EQ(kept(shares, {.temperature = 0.5, .min_p = 0.2}), (Kept{1, 2, 3})) << "temperature comes first";
}

TEST(Sampling, PenaltyMakesSeenTokensLessLikelyWhateverTheirSign) {
  const at::Tensor scores = at::tensor(std::vector<float>{2, -2, 3, -3}, at::kFloat).unsqueeze(0);
  const at::Tensor seen = at::tensor(std::vector<std::uint8_t>{1, 1, 0, 0}, at::kByte).unsqueeze(0).to(at::kBool);
  const at::Tensor expected = at::tensor(std::vector<float>{1, -4, 3, -3}, at::kFloat).unsqueeze(0);
  EXPECT_TRUE(penalize(scores, seen, 2).equal(expected));
}

TEST(Sampling, TemperatureZeroTakesTheLikeliest) {
  EXPECT_EQ(choose(scores_of(shares), {.temperature = 0, .top_k = 3}, {}).item<std::int64_t>(), 1);
}

TEST(Sampling, DrawsFollowTheShares) {
  std::map<std::int64_t, int> counts;
  constexpr int draws = 4000;
  for (int i = 0; i < draws; ++i) {
    const double draw = uniform_draw(5, 7, i);
    ASSERT_GE(draw, 0);
    ASSERT_LT(draw, 1);
    ++counts[choose(scores_of(shares), {.temperature = 1}, {&draw, 1}).item<std::int64_t>()];
  }
  for (std::size_t i = 0; i < shares.size(); ++i) EXPECT_NEAR(counts[std::int64_t(i)] / double(draws), shares[i], 0.03);
}

TEST(Sampling, ExtremeDrawsStayAmongWhatIsKept) {
  const std::vector<double> three = {0, 1 - 1e-12};
  for (const double draw : three) {
    const auto token = choose(scores_of({0.1, 0.4, 0.4, 0.1}), {.temperature = 1, .top_k = 2}, {&draw, 1}).item<std::int64_t>();
    EXPECT_EQ(token, draw == 0 ? 1 : 2);
  }
}

TEST(Sampling, ADrawIsAFunctionOfSeedTextAndPosition) {
  EXPECT_EQ(uniform_draw(1, 2, 3), uniform_draw(1, 2, 3));
  EXPECT_NE(uniform_draw(1, 2, 3), uniform_draw(2, 2, 3));
  EXPECT_NE(uniform_draw(1, 2, 3), uniform_draw(1, 3, 3));
  EXPECT_NE(uniform_draw(1, 2, 3), uniform_draw(1, 2, 4));
}

}  // namespace
}  // namespace lockstep::task
