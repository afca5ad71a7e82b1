// A model whose blocks multiply in 8 bits: the same bits whatever is kept, and no gradient taken for another. Where the device has no 8-bit
// products, plain arithmetic stands in for them. What they do to gradients: fp8_gradients_test.cpp.
#include "rank/model/projection/fp8.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros_like.h>
#include <gtest/gtest.h>

#include "config/config.h"
#include "support/reference/decoder_fixture.h"
#include "support/reference/simulated_fp8.h"

namespace lockstep::model {
namespace {

config::ModelConfig model_of(bool bias) {
  config::ModelConfig c;
  c.hidden_size = 256;
  c.num_layers = 3;
  c.num_heads = 4;
  c.kv_heads = 2;
  c.vocab_size = 512;
  c.max_seq_len = 64;
  c.initializer_range = 0.05;
  c.qkv_bias = c.qk_norm = bias;
  return c;
}

const kernels::Fp8Table& table() { return kernels::has_fp8(test::device()) ? kernels::fp8_table(test::device()) : test::simulated_fp8(); }

struct Result {
  double loss;
  std::vector<std::pair<std::string, at::Tensor>> gradients;
};

struct Setting {
  bool fp8 = true;
  std::vector<Recompute> keep = {Recompute::none, Recompute::none, Recompute::none};
  std::int64_t time = 64;
};

Result run(const config::ModelConfig& config, const Setting& setting) {
  const UnitStorage storage{.device = test::device(), .weight_dtype = at::kBFloat16, .gradient_dtype = at::kBFloat16};
  auto units = test::make_units(config, storage);
  Decoder decoder(config, test::pointers(units));
  if (setting.fp8) decoder.use_fp8(table());
  decoder.set_recompute(setting.keep);
  Result result;
  result.loss = test::loss_of_two_steps(decoder, {.vocab = 512, .batch = 5, .time = setting.time, .ignored = 5}, storage.device);
  for (const auto& unit : units)
    for (const auto& [name, view] : unit->pieces_of(unit->gradients())) result.gradients.emplace_back(name, view.clone());
  return result;
}

void expect_same_bits(const Result& a, const Result& b) {
  EXPECT_EQ(a.loss, b.loss);
  for (std::size_t i = 0; i < a.gradients.size(); ++i)
    EXPECT_TRUE(at::equal(a.gradients[i].second, b.gradients[i].second)) << a.gradients[i].first;
}

TEST(Fp8Model, EveryPolicyGivesTheSameBits) {
  const test::Deterministic deterministic;
  for (const bool bias : {false, true}) {
    const auto all = run(model_of(bias), {});
    EXPECT_NE(all.loss, run(model_of(bias), {.fp8 = false}).loss) << "the products were those of bf16";
    for (const auto keep : {Recompute::none, Recompute::norms, Recompute::qkv, Recompute::blocks})
      expect_same_bits(all, run(model_of(bias), {.keep = {keep, keep, keep}}));
    expect_same_bits(all, run(model_of(bias), {.keep = {Recompute::blocks, Recompute::none, Recompute::norms}}));
    expect_same_bits(all, run(model_of(bias), {.keep = {Recompute::qkv, Recompute::blocks, Recompute::qkv}}));
  }
}

TEST(Fp8Model, RowsThatDoNotFitAreMultipliedInBf16) {
  const test::Deterministic deterministic;
  expect_same_bits(run(model_of(true), {.fp8 = false, .time = 13}), run(model_of(true), {.time = 13}));
}

// The two products of a gradient in either order, with another gradient at the same address in between.
TEST(Fp8Model, PairsDoNotMixUpGradients) {
  const auto random = [](std::int64_t rows, std::int64_t columns, int seed) {
    return at::randn({rows, columns}, test::generator(std::uint64_t(seed))).to(at::kBFloat16).to(test::device());
  };
  const auto w = random(48, 32, 1), x = random(64, 32, 2), dout = random(64, 48, 3), other = random(64, 48, 4);
  const auto near = [](const at::Tensor& a, const at::Tensor& b) {
    const auto x = a.to(at::kDouble), y = b.to(at::kDouble);
    return ((x * y).sum() / (x.norm() * y.norm())).item<double>() > 0.9999;
  };
  const auto rounded = [](const at::Tensor& x, at::ScalarType type, float largest) {
    const float multiply = largest / x.to(at::kFloat).abs().max().item<float>();
    return (x.to(at::kFloat) * multiply).to(type).to(at::kFloat) / multiply;
  };
  const auto e4m3 = [&](const at::Tensor& x) { return rounded(x, at::kFloat8_e4m3fn, 448); };
  const auto e5m2 = [&](const at::Tensor& x) { return rounded(x, at::kFloat8_e5m2, 57344); };
  Fp8Products products(test::device(), table());
  Fp8Scales scales;
  EXPECT_TRUE(products.forward(dout.clone(), x, w, {}, kernels::Into::write, scales));
  for (const bool weight_first : {true, false}) {
    const auto dx = random(64, 32, 5), dweight = at::zeros_like(w);
    const auto check = [&](const at::Tensor& d) {
      dout.copy_(d);  // where the last one was: what is cast must follow from begin_backward alone
      dweight.zero_();
      products.begin_backward();
      const auto weight = [&] { EXPECT_TRUE(products.backward_weight(dweight, dout, x, scales)); };
      if (weight_first) weight();
      EXPECT_TRUE(products.backward_input(dx, dout, w, kernels::Into::write, scales, /*paired=*/true));
      if (!weight_first) weight();
      EXPECT_TRUE(near(dx, at::matmul(e5m2(d), e4m3(w))));
      EXPECT_TRUE(near(dweight, at::matmul(e5m2(d).t(), e4m3(x))));
    };
    check(dout.clone());
    check(other);
  }
}

TEST(Fp8Memory, HoldsTheLargestGradientTwiceAndOneFactor) {
  config::ModelConfig c = model_of(false);
  c.intermediate_size = 1024;
  EXPECT_EQ(fp8_bytes(config::with_defaults(c), 4096), 4096 * 2 * 2048 + 4096 * 1024);
  EXPECT_EQ(fp8_bytes(config::with_defaults(c), 16), 16 * 2 * 2048 + 2048 * 256) << "few rows: the largest weight";
}

}  // namespace
}  // namespace lockstep::model
