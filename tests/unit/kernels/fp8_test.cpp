// Scales, 8-bit copies and their products against plain ATen.
#include "rank/kernels/fp8.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include "support/reference/test_device.h"

namespace lockstep::kernels {
namespace {

struct Sizes {
  std::int64_t rows, columns;
};
const std::vector<Sizes> kSizes = {{16, 16}, {128, 128}, {16, 4096}, {4112, 48}, {144, 272}, {2048, 1536}};
const std::vector<Fp8> kFormats = {Fp8::e4m3, Fp8::e5m2};

double largest(Fp8 format) { return format == Fp8::e4m3 ? 448 : 57344; }

class Fp8Kernels : public testing::Test {
 protected:
  void SetUp() override {
    if (!has_fp8(test::device())) GTEST_SKIP() << "needs a GPU of compute capability 8.9 or later: 8-bit products";
  }
  // Numbers of very different sizes, as gradients have them.
  static at::Tensor random(const Sizes& s, int seed) {
    const auto g = test::generator(std::uint64_t(seed));
    return (at::randn({s.rows, s.columns}, g) * at::randn({s.rows, 1}, g).exp()).to(at::kBFloat16).to(test::device());
  }
  static at::Tensor empty(std::int64_t rows, std::int64_t columns, Fp8 format) {
    return at::full({rows, columns}, 0x7f, at::TensorOptions().dtype(at::kByte).device(test::device())).view(scalar_type(format));
  }
  static const Fp8Table& table() { return fp8_table(test::device()); }
  static at::Tensor new_scale() { return make_fp8_scales(1, test::device())[0]; }
  struct Numbers {
    float multiply, factor;
  };
  static Numbers numbers(const at::Tensor& scale) {
    const auto host = scale.cpu();
    const auto* read = static_cast<const Fp8Scale*>(host.const_data_ptr());
    EXPECT_EQ(read->largest, 0u);
    EXPECT_EQ(read->done, 0u) << "ready for the next tensor";
    return {read->multiply, read->factor};
  }
  static Fp8Matrix cast(const at::Tensor& x, Fp8 format) {
    Fp8Matrix made{empty(x.size(0), x.size(1), format), new_scale()};
    fp8_measure(table(), x, format, made.scale);
    fp8_cast(table(), x, made.scale, made.values, {});
    return made;
  }
  static at::Tensor back(const Fp8Matrix& m) { return m.values.to(at::kFloat) * numbers(m.scale).factor; }
};

TEST_F(Fp8Kernels, TheLargestMagnitudeDecides) {
  const auto scale = new_scale();
  for (const auto& s : kSizes)
    for (const auto format : kFormats) {
      SCOPED_TRACE(fmt::format("{} x {}, format {}", s.rows, s.columns, int(format)));
      const auto x = random(s, 1);
      x[s.rows - 1][s.columns - 1] = -1e4;  // the last number, and negative
      fp8_measure(table(), x, format, scale);
      const float most = x.abs().max().item<float>();
      EXPECT_FLOAT_EQ(numbers(scale).multiply, float(largest(format)) / most);
      EXPECT_FLOAT_EQ(numbers(scale).factor, most / float(largest(format)));
    }
}

TEST_F(Fp8Kernels, TensorsWithoutAScale) {
  const auto scale = new_scale();
  const auto x = at::zeros({32, 48}, at::TensorOptions().dtype(at::kBFloat16).device(test::device()));
  fp8_measure(table(), x, Fp8::e4m3, scale);
  EXPECT_EQ(numbers(scale).multiply, 1.0f);
  x[3][5] = 1e-38;
  fp8_measure(table(), x, Fp8::e5m2, scale);
  EXPECT_TRUE(std::isfinite(numbers(scale).multiply));
  EXPECT_GT(numbers(scale).factor, 0.0f);
  for (const float bad : {NAN, INFINITY}) {
    x[7][9] = bad;
    const auto out = empty(32, 48, Fp8::e4m3);
    fp8_measure(table(), x, Fp8::e4m3, scale);
    fp8_cast(table(), x, scale, out, {});
    EXPECT_TRUE(std::isnan(out.to(at::kFloat)[7][9].item<float>())) << "what is not a number stays none";
  }
}

TEST_F(Fp8Kernels, CopiesAreATensRoundingBitByBit) {
  for (const auto& s : kSizes)
    for (const auto format : kFormats) {
      SCOPED_TRACE(fmt::format("{} x {}, format {}", s.rows, s.columns, int(format)));
      const auto x = random(s, 2);
      const auto scale = new_scale();
      fp8_measure(table(), x, format, scale);
      const auto expected = (x.cpu().to(at::kFloat) * numbers(scale).multiply).to(scalar_type(format)).view(at::kByte);
      const auto same = [](const at::Tensor& copy, const at::Tensor& wanted) { return at::equal(copy.view(at::kByte).cpu(), wanted); };
      const auto both = empty(s.rows, s.columns, format), both_t = empty(s.columns, s.rows, format);
      fp8_cast(table(), x, scale, both, both_t);
      EXPECT_TRUE(same(both, expected));
      EXPECT_TRUE(same(both_t, expected.t().contiguous()));
      const auto alone = empty(s.rows, s.columns, format), alone_t = empty(s.columns, s.rows, format);
      fp8_cast(table(), x, scale, alone, {});
      fp8_cast(table(), x, scale, {}, alone_t);
      EXPECT_TRUE(same(alone, expected));
      EXPECT_TRUE(same(alone_t, expected.t().contiguous()));
    }
}

// Against the same product of the rounded numbers: only the sum's precision and the result's rounding are left.
TEST_F(Fp8Kernels, ProductsOfTheRoundedNumbers) {
  for (const auto [rows, columns, inner] :
       {std::array<std::int64_t, 3>{16, 16, 16}, {128, 256, 512}, {48, 144, 272}, {1024, 768, 2048}, {16, 4096, 64}})
    for (const auto left_format : kFormats)
      for (const auto sums : {Sums::fast, Sums::exact}) {
        SCOPED_TRACE(fmt::format("{} x {} x {}, format {}, sums {}", rows, columns, inner, int(left_format), int(sums)));
        const auto x = random({rows, inner}, 3), w = random({columns, inner}, 4);
        const auto left = cast(x, left_format), right = cast(w, Fp8::e4m3);
        const auto product = at::matmul(back(left), back(right).t());
        const auto bias = random({1, columns}, 5).view({-1});
        // bf16 rounds by at most half a unit of its 8 bits, twice where something was there before. Fast sums keep some 13 bits of what
        // they have so far with each 32 terms.
        const double most = std::ldexp(1, -8) + (sums == Sums::fast ? double(inner) / 32 * std::ldexp(1, -13) : 0);
        const auto expect_near = [&](const at::Tensor& actual, const at::Tensor& expected) {
          const auto a = actual.to(at::kDouble), e = expected.to(at::kDouble);
          EXPECT_LE((a - e).abs().max().item<double>(), most * e.abs().max().item<double>());
          EXPECT_GE(((a * e).sum() / (a.norm() * e.norm())).item<double>(), sums == Sums::fast ? 0.9999 : 0.99999);
        };
        const auto out = at::full({rows, columns}, NAN, x.options());
        ASSERT_TRUE(fp8_matmul(table(), out, left, right, Into::write, sums));
        expect_near(out, product);
        ASSERT_TRUE(fp8_matmul(table(), out, left, right, Into::write, sums, bias));
        expect_near(out, product + bias.to(at::kFloat));
        for (const auto type : {at::kFloat, at::kBFloat16}) {
          const auto sum = random({rows, columns}, 6).to(type), before = sum.clone();
          ASSERT_TRUE(fp8_matmul(table(), sum, left, right, Into::add, sums));
          expect_near(sum, before.to(at::kFloat) + product);
        }
      }
}

}  // namespace
}  // namespace lockstep::kernels
