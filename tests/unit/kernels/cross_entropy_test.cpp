// Cross-entropy against plain ATen, over vocabularies that a block holds whole, in part, or number by number.
#include <ATen/core/Reduction.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/full.h>
#include <ATen/ops/randint.h>

#include <limits>

#include "rank/kernels/kernels.h"
#include "support/reference/close.h"

namespace lockstep::kernels {
namespace {

using namespace test;

// Those of models, those that no vector divides, and more logits than registers and shared memory hold.
const std::vector<Shape> kVocabularies = {{1, 2},     {4, 96},    {9, 101},    {3, 32000},  {2, 32776},  {2, 50257},
                                          {3, 49152}, {1, 99999}, {2, 128256}, {2, 152064}, {1, 200001}, {3, 300000}};

TEST(CrossEntropy, LossAndGradient) {
  for (const auto& shape : kVocabularies)
    for (const auto type : kTypes) {
      SCOPED_TRACE(fmt::format("{} x {}, {}", shape.rows, shape.width, c10::toString(type)));
      const auto logits = random({shape.rows, shape.width}, 1, type) * 4;
      auto targets = at::randint(0, shape.width, {shape.rows}, test::generator(2), at::kLong);
      if (shape.rows > 2) targets[1].fill_(-100);
      targets = targets.to(test::device());
      const auto scale = at::full({}, 0.25, at::TensorOptions().dtype(at::kFloat)).to(test::device());
      const auto losses = random({shape.rows}, 3), gradient = logits.clone(),
                 plain = leaf(logits).to(at::kDouble).detach().set_requires_grad(true);
      const auto expected = at::cross_entropy_loss(plain, targets, {}, at::Reduction::None, -100);
      (expected.sum() * 0.25).backward();
      cross_entropy(logits, targets, losses, {});
      const Within alone{}, shares{.sums = 0, .relative = 1e-5};  // every entry of the gradient by its own size
      expect_close(losses, expected, "losses alone", alone);
      losses.fill_(-1);
      cross_entropy(gradient, targets, losses, scale);
      expect_close(losses, expected, "losses", alone);
      expect_close(gradient, plain.grad(), "gradient", shares);
      if (shape.rows > 2) {
        EXPECT_EQ(gradient[1].abs().max().item<double>(), 0) << "an ignored row has no gradient";
      }
    }
}

TEST(CrossEntropy, ATokenIsCorrectWhereItIsTheFirstOfTheLikeliest) {
  for (const auto& shape : std::vector<Shape>{{64, 7}, {64, 96}, {64, 101}, {8, 32000}, {8, 128256}})
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
  for (const double bad : {double(NAN), double(INFINITY)})
    for (const auto type : kTypes)
      for (const std::int64_t vocab : {64, 101, 49152, 128256, 152064, 300000})
        for (const std::int64_t place : {std::int64_t(3), vocab / 2, vocab - 1}) {
          SCOPED_TRACE(fmt::format("{} at {} of {}, {}", bad, place, vocab, c10::toString(type)));
          const auto logits = at::zeros({2, vocab}, at::TensorOptions().device(test::device()).dtype(type)), losses = random({2}, 2);
          logits[1][place].fill_(bad);
          const auto targets = at::zeros({2}, logits.options().dtype(at::kLong));
          cross_entropy(logits, targets, losses, {});
          EXPECT_TRUE(std::isfinite(losses[0].item<float>()));
          EXPECT_FALSE(std::isfinite(losses[1].item<float>()));
        }
}

TEST(CrossEntropy, TokensOfNoProbability) {
  // Rows: the first logits of every thread, all but a few, and all but the target are -inf; the target itself is.
  for (const std::int64_t vocab : {96, 101, 32000, 49152, 128256, 152064, 300000})
    for (const auto type : kTypes) {
      SCOPED_TRACE(fmt::format("{}, {}", vocab, c10::toString(type)));
      const auto none = -std::numeric_limits<double>::infinity();
      const auto logits = random({4, vocab}, 1, type) * 2;
      const std::int64_t target = vocab - 2;
      logits[0].narrow(0, 0, vocab - vocab / 8).fill_(none);
      logits[1].narrow(0, 1, vocab - 4).fill_(none);
      logits[1][target].fill_(1);
      logits[2].narrow(0, 0, target).fill_(none);
      logits[2][vocab - 1].fill_(none);
      logits[3][target].fill_(none);
      const auto targets = at::full({4}, target, logits.options().dtype(at::kLong));
      const auto scale = at::full({}, 0.5, at::TensorOptions().dtype(at::kFloat)).to(test::device());
      const auto losses = random({4}, 3), plain = leaf(logits);
      const auto expected = at::cross_entropy_loss(plain, targets, {}, at::Reduction::None, -100);
      (expected.narrow(0, 0, 3).sum() * 0.5).backward();
      for (const bool gradient : {false, true}) {
        cross_entropy(logits, targets, losses, gradient ? scale : at::Tensor());
        expect_close(losses.narrow(0, 0, 3), expected.narrow(0, 0, 3), "losses");
        EXPECT_EQ(losses[3].item<float>(), std::numeric_limits<float>::infinity());
      }
      expect_close(logits.narrow(0, 0, 3), plain.grad().narrow(0, 0, 3), "gradient");
    }
}

TEST(CrossEntropy, MemoryNeedNotBeAligned) {
  for (const auto& shape : std::vector<Shape>{{3, 96}, {2, 49152}})
    for (const auto type : kTypes) {
      const auto logits = random({shape.rows, shape.width}, 1, type), off = shifted(logits);
      const auto targets = at::randint(0, shape.width, {shape.rows}, test::generator(2), at::kLong).to(test::device());
      const auto scale = at::full({}, 0.25, at::TensorOptions().dtype(at::kFloat)).to(test::device());
      const auto losses = random({shape.rows}, 3), losses_off = like(losses);
      cross_entropy(logits, targets, losses, scale);
      cross_entropy(off, targets, losses_off, scale);
      expect_close(losses_off, losses, "losses");
      expect_close(off, logits, "gradient");
    }
}

}  // namespace
}  // namespace lockstep::kernels
