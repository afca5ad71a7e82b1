// RMSNorm against plain ATen, over the widths and memory that kernels treat differently.
#include <ATen/ops/equal.h>

#include "rank/kernels/kernels.h"
#include "support/reference/close.h"

namespace lockstep::kernels {
namespace {

using namespace test;

// Widths: one, what models have, more than a block holds in one or two vectors a thread, and those that leave a tail in every vector
// size. Rows: fewer than a GPU has blocks, and more than it has rows of partial sums.
const std::vector<Shape> kNormShapes = {{1, 1},    {3, 64},     {1100, 64}, {17, 96},  {130, 100}, {5, 33},
                                        {9, 333},  {601, 896},  {7, 1027},  {3, 1536}, {4, 2048},  {543, 2048},
                                        {3, 3584}, {301, 4096}, {2, 4104},  {3, 5120}, {2, 8192},  {2, 16384}};

TEST(RmsNorm, ForwardAddsTheResidual) {
  over_shapes(kNormShapes, [](const Shape& s, at::ScalarType type) {
    const auto residual = random({s.rows, s.width}, 1, type), delta = random({s.rows, s.width}, 2, type),
               weight = random({s.width}, 3, type);
    const auto x = like(residual), out = like(residual), rstd = random({s.rows}, 4);
    rms_norm_forward(residual, delta, weight, 1e-5, x, out, rstd);
    const auto sum = residual.to(at::kFloat) + delta.to(at::kFloat);
    expect_close(x, sum, "x");
    expect_close(out, plain_norm(x.to(at::kFloat), weight.to(at::kFloat), 1e-5), "out");
    expect_close(rstd, at::rsqrt(x.to(at::kFloat).pow(2).mean(-1) + 1e-5), "rstd");

    const auto again = like(out);
    rms_norm_apply(x, weight, rstd, again);
    EXPECT_TRUE(at::equal(again, out)) << "recomputed, a norm is the same bits";
    rms_norm_forward(residual, delta, weight, 1e-5, delta, again, rstd);
    EXPECT_TRUE(at::equal(delta, x) && at::equal(again, out)) << "the sum may take the delta's place";
  });
}

TEST(RmsNorm, ForwardWithoutDelta) {
  over_shapes(kNormShapes, [](const Shape& s, at::ScalarType type) {
    const auto x = random({s.rows, s.width}, 1, type), weight = random({s.width}, 3, type);
    const auto out = like(x), rstd = random({s.rows}, 4);
    rms_norm_forward(x, {}, weight, 1e-6, {}, out, rstd);
    expect_close(out, plain_norm(x.to(at::kFloat), weight.to(at::kFloat), 1e-6), "out");
  });
}

TEST(RmsNorm, Backward) {
  over_shapes(kNormShapes, [](const Shape& s, at::ScalarType type) {
    const auto x = random({s.rows, s.width}, 1, type), weight = random({s.width}, 2, type), dout = random({s.rows, s.width}, 3, type);
    const auto rstd = at::rsqrt(x.to(at::kFloat).pow(2).mean(-1) + 1e-5), earlier = random({s.rows, s.width}, 4, type);
    const auto px = leaf(x), pw = leaf(weight);
    plain_norm(px, pw, 1e-5).backward(dout.to(at::kFloat));

    // The gradient is a difference of two terms of this size, which in a row of one number are nearly equal.
    const Within within{.terms = (dout.to(at::kFloat) * weight.to(at::kFloat) * rstd.unsqueeze(-1)).abs().max().item<double>()};
    for (const auto into : {Into::write, Into::add}) {
      const auto expected = into == Into::add ? earlier.to(at::kFloat) + px.grad() : px.grad();
      for (const auto gradient_type : {at::kFloat, type}) {
        const auto dx = earlier.clone(), dweight = random({s.width}, 5, gradient_type), dweight_before = dweight.clone();
        rms_norm_backward(dout, x, weight, rstd, dx, into, dweight);
        expect_close(dx, expected, "dx", within);
        expect_close(dweight, dweight_before.to(at::kFloat) + pw.grad(), "dweight");
        const auto again = earlier.clone(), dweight_again = dweight_before.clone();
        rms_norm_backward(dout, x, weight, rstd, again, into, dweight_again);
        EXPECT_TRUE(at::equal(again, dx) && at::equal(dweight_again, dweight)) << "the same every time";
      }
      const auto alone = earlier.clone(), off = shifted(earlier);
      rms_norm_backward(dout, x, weight, rstd, alone, into, {});
      expect_close(alone, expected, "dx without a weight gradient", within);
      if (s.width > 4096) continue;  // without vectors a block holds no more
      rms_norm_backward(shifted(dout), shifted(x), shifted(weight), rstd, off, into, {});
      expect_close(off, expected, "dx in memory that is not aligned", within);
    }
  });
}

TEST(RmsNorm, BackwardMayTakeTheGradientsPlace) {
  over_shapes({{5, 33}, {301, 4096}, {601, 896}}, [](const Shape& s, at::ScalarType type) {
    const auto x = random({s.rows, s.width}, 1, type), weight = random({s.width}, 2, type), dout = random({s.rows, s.width}, 3, type);
    const auto rstd = at::rsqrt(x.to(at::kFloat).pow(2).mean(-1) + 1e-5);
    for (const bool with_weight : {false, true}) {
      const auto dx = like(x), in_place = dout.clone();
      const auto dweight = with_weight ? random({s.width}, 5) : at::Tensor(), same = with_weight ? dweight.clone() : at::Tensor();
      rms_norm_backward(dout, x, weight, rstd, dx, Into::write, dweight);
      rms_norm_backward(in_place, x, weight, rstd, in_place, Into::write, same);
      EXPECT_TRUE(at::equal(in_place, dx));
      if (with_weight) {
        EXPECT_TRUE(at::equal(same, dweight));
      }
    }
  });
}

TEST(RmsNorm, TheWidestRows) {
  for (const auto type : {at::kBFloat16, at::kHalf}) {
    const std::int64_t rows = 3, width = 32768;
    const auto x = random({rows, width}, 1, type), weight = random({width}, 2, type), dout = random({rows, width}, 3, type);
    const auto out = like(x), rstd = random({rows}, 4), dweight = random({width}, 5), before = dweight.clone();
    rms_norm_forward(x, {}, weight, 1e-5, {}, out, rstd);
    const auto px = leaf(x), pw = leaf(weight);
    const auto expected = plain_norm(px, pw, 1e-5);
    expected.backward(dout.to(at::kFloat));
    expect_close(out, expected, "out");
    for (const auto& weight_gradient : {dweight, at::Tensor()}) {
      const auto dx = like(x);
      rms_norm_backward(dout, x, weight, rstd, dx, Into::write, weight_gradient);
      expect_close(dx, px.grad(), "dx");
    }
    expect_close(dweight, before + pw.grad(), "dweight");
  }
}

}  // namespace
}  // namespace lockstep::kernels
