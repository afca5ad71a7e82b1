// Cross-entropy against plain ATen, over vocabularies that a block holds whole, in part, or number by number.
#include <ATen/core/Reduction.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/randint.h>

#include "rank/kernels/kernels.h"
#include "support/reference/close.h"

namespace lockstep::kernels {
namespace {

using namespace test;

TEST(CrossEntropy, LossAndGradient) {
  for (const auto& shape : std::vector<Shape>{{1, 2}, {4, 96}, {9, 101}, {3, 32000}, {2, 50257}})
    for (const auto type : kTypes) {
      SCOPED_TRACE(fmt::format("{} x {}, {}", shape.rows, shape.width, c10::toString(type)));
      const auto logits = random({shape.rows, shape.width}, 1, type) * 4;
      auto targets = at::randint(0, shape.width, {shape.rows}, test::generator(2), at::kLong);
      if (shape.rows > 2) targets[1].fill_(-100);
      targets = targets.to(test::device());
      const auto scale = at::full({}, 0.25, at::TensorOptions().dtype(at::kFloat)).to(test::device());
      const auto losses = random({shape.rows}, 3), gradient = logits.clone(), plain = leaf(logits);
      const auto expected = at::cross_entropy_loss(plain, targets, {}, at::Reduction::None, -100);
      (expected.sum() * 0.25).backward();
      cross_entropy(logits, targets, losses, {});
      expect_close(losses, expected, "losses alone");
      losses.fill_(-1);
      cross_entropy(gradient, targets, losses, scale);
      expect_close(losses, expected, "losses");
      expect_close(gradient, plain.grad(), "gradient");
      if (shape.rows > 2) {
        EXPECT_EQ(gradient[1].abs().max().item<double>(), 0) << "an ignored row has no gradient";
      }
    }
}

TEST(CrossEntropy, ATokenIsCorrectWhereItIsTheFirstOfTheLikeliest) {
  for (const auto& shape : std::vector<Shape>{{64, 7}, {64, 96}, {64, 101}, {8, 32000}})
    for (const auto type : kTypes) {
      SCOPED_TRACE(fmt::format("{} x {}, {}", shape.rows, shape.width, c10::toString(type)));
      const auto logits = (random({shape.rows, shape.width}, 1, type) * 2).round();  // many ties
      const auto likeliest = logits.to(at::kFloat).cpu().argmax(1);
      auto targets = likeliest.clone();
      const auto top = std::get<0>(logits.to(at::kFloat).cpu().max(1));
      for (std::int64_t row = 0; row < shape.rows; ++row) {
        if (row % 4 == 1) targets[row].fill_(-100);
        if (row % 4 == 2) targets[row] = logits[row].to(at::kFloat).cpu().eq(top[row]).nonzero()[-1][0];  // the last of the likeliest
        if (row % 4 == 3) targets[row].fill_((likeliest[row].item<std::int64_t>() + 1) % shape.width);
      }
      const auto losses = random({shape.rows}, 3), correct = random({shape.rows}, 4);
      cross_entropy(logits, targets.to(test::device()), losses, {}, correct);
      EXPECT_TRUE(correct.cpu().equal(targets.eq(likeliest).to(at::kFloat)));
    }
}

TEST(CrossEntropy, WhatIsNotFiniteStaysNotFinite) {
  for (const double bad : {double(NAN), double(INFINITY)}) {
    const auto logits = random({2, 64}, 1), losses = random({2}, 2);
    logits[1][3].fill_(bad);
    const auto targets = at::zeros({2}, logits.options().dtype(at::kLong));
    cross_entropy(logits, targets, losses, {});
    EXPECT_TRUE(std::isfinite(losses[0].item<float>()));
    EXPECT_FALSE(std::isfinite(losses[1].item<float>()));
  }
}

}  // namespace
}  // namespace lockstep::kernels
