// Every matrix product against the same product in f32, over sizes that fill tiles and sizes that do not.
#include "rank/model/projection/linear.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/randn.h>
#include <gtest/gtest.h>

#include "rank/kernels/kernels.h"
#include "support/reference/test_device.h"

namespace lockstep::model {
namespace {

struct LinearSizes {
  std::int64_t rows, in, out;
};

const std::vector<LinearSizes> kSizes = {{1, 1, 1},    {1, 64, 96},     {64, 1, 8},      {3, 5, 7},       {128, 96, 1}, {130, 72, 264},
                                         {17, 33, 65}, {257, 128, 384}, {100, 896, 152}, {260, 264, 520}, {31, 8, 1000}};
const std::vector<at::ScalarType> kTypes = {at::kFloat, at::kBFloat16, at::kHalf};

at::Tensor random(at::IntArrayRef sizes, int seed, at::ScalarType type) {
  return at::randn(sizes, test::generator(seed)).to(type).to(test::device());
}

// Products of n normal numbers are about sqrt(n) large; what is left over comes from rounding the result once.
void expect_close(const at::Tensor& actual, const at::Tensor& expected, std::int64_t terms, const char* what) {
  const auto type = actual.scalar_type();
  const double relative = type == at::kFloat ? 3e-5 : type == at::kHalf ? 1.5e-3 : 1.2e-2;
  const double off = (actual.to(at::kFloat) - expected).abs().max().item<double>();
  EXPECT_LE(off, relative * std::max(expected.abs().max().item<double>(), std::sqrt(double(terms)))) << what << " as " << type;
}

at::Tensor f32(const at::Tensor& t) { return t.to(at::kFloat); }

template <typename F>
void over_sizes(F body) {
  for (const auto& s : kSizes)
    for (const auto type : kTypes) {
      SCOPED_TRACE(fmt::format("{} rows, {} to {}, {}", s.rows, s.in, s.out, c10::toString(type)));
      body(s, type);
    }
}

TEST(Linear, ForwardWithAndWithoutBias) {
  over_sizes([](const LinearSizes& s, at::ScalarType type) {
    const auto x = random({s.rows, s.in}, 1, type), weight = random({s.out, s.in}, 2, type), bias = random({s.out}, 3, type);
    const auto out = at::full_like(random({s.rows, s.out}, 4, type), NAN);  // what was there must not matter
    const auto expected = at::matmul(f32(x), f32(weight).t());
    linear(out, x, weight);
    expect_close(out, expected, s.in, "out");
    linear(out, x, weight, bias);
    expect_close(out, expected + f32(bias), s.in, "out with bias");
    const auto other = random({s.out}, 5, type);  // another bias through the same plan
    linear(out, x, weight, other);
    expect_close(out, expected + f32(other), s.in, "out with another bias");
  });
}

TEST(Linear, BackwardInput) {
  over_sizes([](const LinearSizes& s, at::ScalarType type) {
    const auto dout = random({s.rows, s.out}, 1, type), weight = random({s.out, s.in}, 2, type);
    const auto dx = at::full_like(random({s.rows, s.in}, 3, type), NAN);
    linear_backward_input(dx, dout, weight);
    expect_close(dx, at::matmul(f32(dout), f32(weight)), s.out, "dx");
  });
}

TEST(Linear, BackwardWeightAddsToWhatIsThere) {
  over_sizes([](const LinearSizes& s, at::ScalarType type) {
    for (const auto gradient_type : {at::kFloat, type}) {
      const auto dout = random({s.rows, s.out}, 1, type), x = random({s.rows, s.in}, 2, type);
      const auto dweight = random({s.out, s.in}, 3, gradient_type), before = dweight.clone();
      const auto product = at::matmul(f32(dout).t(), f32(x));
      linear_backward_weight(dweight, dout, x);
      expect_close(dweight, f32(before) + product, s.rows, "dweight");
      const auto again = before.clone();
      linear_backward_weight(again, dout, x);
      EXPECT_TRUE(at::equal(again, dweight)) << "the same every time";
    }
  });
}

TEST(Linear, PartsOfLargerMatrices) {
  for (const auto type : kTypes)
    for (const std::int64_t offset : {0, 8, 3}) {  // the last is aligned to nothing
      const auto x = random({64, 200}, 1, type).narrow(1, offset, 96), weight = random({128, 96}, 2, type);
      const auto dout = random({100, 128}, 3, type).narrow(0, 16, 64);
      const auto whole = random({64, 300}, 4, type), before = whole.clone();
      linear(whole.narrow(1, offset, 128), x, weight);
      expect_close(whole.narrow(1, offset, 128), at::matmul(f32(x), f32(weight).t()), 96, "out");
      EXPECT_TRUE(at::equal(whole.narrow(1, offset + 128, 100), before.narrow(1, offset + 128, 100))) << "what is beside stays";
      const auto dweight = random({128 * 96 + offset}, 5, at::kFloat).narrow(0, offset, 128 * 96).view({128, 96}), was = dweight.clone();
      linear_backward_weight(dweight, dout, x);
      expect_close(dweight, was + at::matmul(f32(dout).t(), f32(x)), 64, "dweight");
    }
}

TEST(Linear, OnCudaSixteenBitProductsAreOurs) {
  if (!test::device().is_cuda()) GTEST_SKIP() << "needs a GPU: on a CPU every product is ATen's";
  for (const auto type : {at::kBFloat16, at::kHalf})
    for (const auto& s : kSizes) {
      const auto x = random({s.rows, s.in}, 1, type), weight = random({s.out, s.in}, 2, type), out = random({s.rows, s.out}, 3, type);
      EXPECT_TRUE(kernels::matmul(out, x, weight.t(), kernels::Into::write)) << s.rows << ", " << s.in << " to " << s.out;
    }
}

TEST(Linear, LargeProductsAreSearchedWithoutHarm) {
  if (!test::device().is_cuda()) GTEST_SKIP() << "needs a GPU: algorithms are searched on CUDA alone";
  // Large enough for a search at first use (of a file that is not there): the accumulated gradient must see the product once.
  for (const auto gradient_type : {at::kFloat, at::kBFloat16}) {
    const std::int64_t rows = 4096, in = 1280, out = 1152;
    const auto x = random({rows, in}, 1, at::kBFloat16), dout = random({rows, out}, 2, at::kBFloat16);
    const auto first = random({out, in}, 3, gradient_type), second = first.clone(), fixed = first.clone(), before = first.clone();
    const auto expected = f32(before) + at::matmul(f32(dout).t(), f32(x));
    linear_backward_weight(first, dout, x);
    linear_backward_weight(second, dout, x);
    expect_close(first, expected, rows, "dweight");
    EXPECT_TRUE(at::equal(first, second)) << "the search and what follows it give the same bits";
    const test::Deterministic deterministic;
    linear_backward_weight(fixed, dout, x);
    expect_close(fixed, expected, rows, "dweight without a search");
  }
}

}  // namespace
}  // namespace lockstep::model
