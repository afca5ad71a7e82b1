// A model whose blocks multiply in 8 bits: near the same model in bf16, and the same bits whatever is kept.
#include "rank/model/fp8.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros_like.h>
#include <gtest/gtest.h>

#include "config/config.h"
#include "rank/model/adapter.h"
#include "support/reference/decoder_fixture.h"

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

struct Result {
  double loss;
  std::vector<std::pair<std::string, at::Tensor>> gradients;
};

struct Setting {
  bool fp8 = true;
  std::vector<Keep> keep = {Keep::all, Keep::all, Keep::all};
  std::int64_t time = 64;
};

Result run(const config::ModelConfig& config, const Setting& setting) {
  const UnitStorage storage{.device = test::device(), .weight_dtype = at::kBFloat16, .gradient_dtype = at::kBFloat16};
  auto units = test::make_units(config, storage);
  Decoder decoder(config, test::pointers(units));
  if (setting.fp8) decoder.use_fp8();
  decoder.set_keep(setting.keep);
  Result result;
  result.loss = test::loss_of_two_steps(decoder, {.vocab = 512, .batch = 5, .time = setting.time, .ignored = 5}, storage.device);
  for (const auto& unit : units)
    for (const auto& [name, view] : unit->pieces_of(unit->gradients())) result.gradients.emplace_back(name, view.clone());
  return result;
}

// The same with frozen weights and adapters, whose own products stay in bf16.
Result run_adapted(const config::ModelConfig& config, const config::LoraConfig& lora, bool fp8) {
  const UnitStorage trained{.device = test::device(), .weight_dtype = at::kBFloat16, .gradient_dtype = at::kBFloat16};
  UnitStorage frozen = trained;
  frozen.trainable = false;
  auto units = test::make_units(config, frozen);
  std::vector<std::unique_ptr<Unit>> adapters;
  std::vector<Unit*> adapter_list;
  for (auto& spec : adapter_units(config, lora)) {
    adapters.push_back(spec ? std::make_unique<Unit>(std::move(*spec), trained) : nullptr);
    adapter_list.push_back(adapters.back().get());
    if (!spec) continue;
    const auto numbers = at::randn({adapters.back()->elements()}, test::generator(adapters.size())) * 0.05;
    adapters.back()->exact().copy_(numbers);  // both factors, so that both have gradients
    adapters.back()->refresh_weights();
  }
  Decoder decoder(config, test::pointers(units), lora, adapter_list);
  decoder.reset_magnitudes();
  if (fp8) decoder.use_fp8();
  const auto batch = test::random_batch({.vocab = 512, .batch = 4, .time = 64}, 0, trained.device);
  Result result;
  result.loss =
      decoder.forward_backward(batch.tokens, batch.targets, at::ones({}, batch.tokens.options().dtype(at::kFloat))).item<double>();
  for (const auto& unit : adapters) {
    if (!unit) continue;
    for (const auto& [name, view] : unit->pieces_of(unit->gradients())) result.gradients.emplace_back(name, view.clone());
  }
  return result;
}

void expect_near(const Result& fp8, const Result& plain) {
  EXPECT_NEAR(fp8.loss, plain.loss, 0.01 * plain.loss);
  EXPECT_NE(fp8.loss, plain.loss) << "the products were those of bf16";
  ASSERT_EQ(fp8.gradients.size(), plain.gradients.size());
  for (std::size_t i = 0; i < plain.gradients.size(); ++i) {
    const auto a = fp8.gradients[i].second.to(at::kDouble), b = plain.gradients[i].second.to(at::kDouble);
    EXPECT_GT(((a * b).sum() / (a.norm() * b.norm())).item<double>(), 0.93) << plain.gradients[i].first;
    EXPECT_NEAR((a.norm() / b.norm()).item<double>(), 1, 0.1) << plain.gradients[i].first;
  }
}

void expect_same_bits(const Result& a, const Result& b) {
  EXPECT_EQ(a.loss, b.loss);
  for (std::size_t i = 0; i < a.gradients.size(); ++i)
    EXPECT_TRUE(at::equal(a.gradients[i].second, b.gradients[i].second)) << a.gradients[i].first;
}

class Fp8Model : public testing::Test {
 protected:
  void SetUp() override {
    if (!kernels::has_fp8(test::device())) GTEST_SKIP() << "needs a GPU of compute capability 8.9 or later: 8-bit products";
  }
};

TEST_F(Fp8Model, LossAndGradientsAreNearThoseOfBf16) {
  for (const bool bias : {false, true}) expect_near(run(model_of(bias), {}), run(model_of(bias), {.fp8 = false}));
}

TEST_F(Fp8Model, AdaptersBesideFrozenWeights) {
  for (const bool dora : {false, true}) {
    config::LoraConfig lora;
    lora.enabled = true;
    lora.rank = 8;
    lora.target_modules = {"all-linear"};
    lora.dora = dora;
    expect_near(run_adapted(model_of(true), lora, true), run_adapted(model_of(true), lora, false));
  }
}

TEST_F(Fp8Model, EveryPolicyGivesTheSameBits) {
  const test::Deterministic deterministic;
  for (const bool bias : {false, true}) {
    const auto all = run(model_of(bias), {});
    for (const auto keep : {Keep::all, Keep::matmuls, Keep::without_qkv, Keep::input})
      expect_same_bits(all, run(model_of(bias), {.keep = {keep, keep, keep}}));
    expect_same_bits(all, run(model_of(bias), {.keep = {Keep::input, Keep::all, Keep::matmuls}}));
    expect_same_bits(all, run(model_of(bias), {.keep = {Keep::without_qkv, Keep::input, Keep::without_qkv}}));
  }
}

TEST_F(Fp8Model, RowsThatDoNotFitAreMultipliedInBf16) {
  const test::Deterministic deterministic;
  expect_same_bits(run(model_of(true), {.fp8 = false, .time = 13}), run(model_of(true), {.time = 13}));
}

// The two products of a gradient in either order, with another gradient at the same address in between.
TEST_F(Fp8Model, PairsDoNotMixUpGradients) {
  const auto random = [](std::int64_t rows, std::int64_t columns, int seed) {
    return at::randn({rows, columns}, test::generator(std::uint64_t(seed))).to(at::kBFloat16).to(test::device());
  };
  const auto w = random(48, 32, 1), x = random(64, 32, 2), dout = random(64, 48, 3), other = random(64, 48, 4);
  const auto near = [](const at::Tensor& a, const at::Tensor& b) {
    const auto x = a.to(at::kDouble), y = b.to(at::kDouble);
    return ((x * y).sum() / (x.norm() * y.norm())).item<double>() > 0.99;
  };
  Fp8Products products(test::device());
  Fp8Scales scales;
  EXPECT_TRUE(products.forward(dout.clone(), x, w, {}, kernels::Into::write, scales));
  for (const bool weight_first : {true, false}) {
    const auto dx = random(64, 32, 5), dweight = at::zeros_like(w);
    const auto check = [&](const at::Tensor& d) {
      dout.copy_(d);
      dweight.zero_();
      const auto weight = [&] { EXPECT_TRUE(products.backward_weight(dweight, dout, x, scales)); };
      if (weight_first) weight();
      EXPECT_TRUE(products.backward_input(dx, dout, w, kernels::Into::write, scales, /*paired=*/true));
      if (!weight_first) weight();
      EXPECT_TRUE(near(dx, at::matmul(d.to(at::kFloat), w.to(at::kFloat))));
      EXPECT_TRUE(near(dweight, at::matmul(d.to(at::kFloat).t(), x.to(at::kFloat))));
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
