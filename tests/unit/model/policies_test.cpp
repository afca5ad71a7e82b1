// What a block keeps changes its memory, never its numbers; 16-bit models stay close to the f32 reference.
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>

#include "rank/model/projection/adapter.h"
#include "support/reference/close.h"
#include "support/reference/decoder_fixture.h"
#include "support/reference/reference_decoder.h"

namespace lockstep::model {
namespace {

config::ModelConfig rich_model() {
  config::ModelConfig c;
  c.hidden_size = 64;
  c.num_layers = 3;
  c.num_heads = 4;
  c.kv_heads = 2;
  c.vocab_size = 96;
  c.max_seq_len = 32;
  c.initializer_range = 0.08;
  c.qkv_bias = c.qk_norm = true;
  return c;
}

struct Result {
  double loss;
  std::vector<at::Tensor> gradients;
};

constexpr std::int64_t kFew = 3, kMany = 40;  // samples of 16 rows; with many, SwiGLU is part of its matmuls where a device can do that

template <typename Prepare>
Result run(const config::ModelConfig& config, const UnitStorage& storage, Prepare prepare, std::int64_t batch = kFew) {
  auto units = test::make_units(config, storage);
  Decoder decoder(config, test::pointers(units));
  prepare(decoder);
  Result result;
  result.loss = test::loss_of_two_steps(decoder, {.vocab = config.vocab_size, .batch = batch, .time = 16, .ignored = 5}, storage.device);
  for (const auto& unit : units) result.gradients.push_back(unit->gradients().clone());
  return result;
}

void expect_same_bits(const Result& a, const Result& b) {
  EXPECT_EQ(a.loss, b.loss);
  for (std::size_t i = 0; i < a.gradients.size(); ++i) EXPECT_TRUE(at::equal(a.gradients[i], b.gradients[i])) << "unit " << i;
}

TEST(Recompute, EveryPolicyGivesTheSameBits) {
  const auto device = test::device();
  const test::Deterministic deterministic;
  for (const auto& [head_norms, type, batch] : {std::tuple{false, at::kFloat, kFew},
                                                {true, at::kFloat, kFew},
                                                {false, at::kBFloat16, kFew},
                                                {true, at::kBFloat16, kFew},
                                                {true, at::kBFloat16, kMany}}) {
    auto config = rich_model();
    config.qk_norm = config.qkv_bias = head_norms;
    const UnitStorage storage{.device = device, .weight_dtype = type, .gradient_dtype = type};
    const auto all = run(config, storage, [](Decoder&) {}, batch);
    for (const auto keep : {Recompute::norms, Recompute::qkv, Recompute::blocks}) {
      SCOPED_TRACE(fmt::format("policy {}, {}, head norms {}", int(keep), c10::toString(type), head_norms));
      expect_same_bits(all, run(config, storage, [&](Decoder& d) { d.set_recompute({keep, keep, keep}); }, batch));
    }
    expect_same_bits(
        all, run(config, storage, [](Decoder& d) { d.set_recompute({Recompute::blocks, Recompute::none, Recompute::norms}); }, batch));
    expect_same_bits(all,
                     run(config, storage, [](Decoder& d) { d.set_recompute({Recompute::qkv, Recompute::blocks, Recompute::qkv}); }, batch));
  }
}

// Records that share rows, and adapters whose dropped elements have to fall again.
TEST(Recompute, PackedRecordsAndDropoutComeBackTheSame) {
  const auto device = test::device();
  const test::Deterministic deterministic;
  config::LoraConfig lora;
  lora.enabled = true;
  lora.rank = 4;
  lora.dropout = 0.4;
  lora.target_modules = {"all-linear"};
  for (const bool head_norms : {false, true}) {
    auto config = rich_model();
    config.qk_norm = head_norms;
    const auto batch = test::random_batch({.vocab = config.vocab_size, .batch = 2, .time = 16, .ignored = 5}, 0, device);
    const Input input{.tokens = batch.tokens,
                      .targets = batch.targets,
                      .starts = at::tensor({0, 5, 12, 16, 17, 32}, at::kInt),
                      .keys = at::arange(7, 9, at::kLong).to(device)};
    auto frozen = test::make_units(config, {.device = device, .trainable = false});
    const auto run = [&](const std::vector<Recompute>& keep) {
      std::vector<std::unique_ptr<Unit>> adapters;
      std::vector<Unit*> list;
      for (auto& spec : adapter_units(config, lora)) {
        adapters.push_back(spec ? std::make_unique<Unit>(std::move(*spec), UnitStorage{.device = device}) : nullptr);
        list.push_back(adapters.back().get());
        if (spec) adapters.back()->weights().copy_(at::randn({adapters.back()->elements()}, test::generator(adapters.size())) * 0.1);
      }
      Decoder decoder(config, test::pointers(frozen), lora, list);
      decoder.set_recompute(keep);
      Result result;
      for (int step = 0; step < 2; ++step) result.loss = decoder.forward_backward(input, at::ones({}).to(device)).item<double>();
      for (const auto& unit : adapters)
        if (unit) result.gradients.push_back(unit->gradients());
      return result;
    };
    const auto all = run({Recompute::none, Recompute::none, Recompute::none});
    ASSERT_EQ(all.gradients.size(), 3);
    for (const auto keep : {Recompute::norms, Recompute::qkv, Recompute::blocks}) {
      SCOPED_TRACE(fmt::format("policy {}, head norms {}", int(keep), head_norms));
      expect_same_bits(all, run({keep, keep, keep}));
    }
  }
}

// More blocks than the buffers that inputs travel through.
TEST(Recompute, OffloadedInputsComeBackTheSame) {
  auto config = rich_model();
  config.num_layers = 9;
  const UnitStorage storage{.device = test::device()};
  const test::Deterministic deterministic;
  const auto plain = run(config, storage, [](Decoder&) {});
  expect_same_bits(
      plain, run(config, storage, [](Decoder& d) { d.set_recompute(std::vector<Recompute>(9, Recompute::blocks), /*offload=*/true); }));
  std::vector<Recompute> every_other(9, Recompute::none);
  for (std::size_t i = 0; i < 9; i += 2) every_other[i] = Recompute::blocks;
  expect_same_bits(plain, run(config, storage, [&](Decoder& d) { d.set_recompute(every_other, /*offload=*/true); }));
}

TEST(Recompute, EvaluationBetweenStepsChangesNothing) {
  const auto config = rich_model();
  const UnitStorage storage{.device = test::device()};
  const test::Deterministic deterministic;
  const auto plain = run(config, storage, [](Decoder&) {});
  auto units = test::make_units(config, storage);
  Decoder decoder(config, test::pointers(units));
  for (int step = 0; step < 2; ++step) {
    const auto other = test::random_batch({.vocab = 96, .batch = 1, .time = 9}, 50 + step, storage.device);
    decoder.loss_sum(other.tokens, other.targets);
    decoder.logits(other.tokens);
    const auto batch = test::random_batch({.vocab = 96, .batch = 3, .time = 16, .ignored = 5}, step, storage.device);
    decoder.forward_backward(batch.tokens, batch.targets, at::ones({}, batch.tokens.options().dtype(at::kFloat)));
  }
  for (std::size_t i = 0; i < units.size(); ++i) EXPECT_TRUE(at::equal(units[i]->gradients(), plain.gradients[i])) << i;
}

struct Types {
  at::ScalarType weight, gradient;
};

class SixteenBit : public testing::TestWithParam<Types> {};

// As far from f32 as the same model plainly in ATen in the same type, and no entry further than rounding explains.
TEST_P(SixteenBit, GradientsAreAsExactAsTheTypeAllows) {
  const auto [weight, gradient] = GetParam();
  auto config = rich_model();
  config.tie_embeddings = false;
  const UnitStorage storage{.device = test::device(), .weight_dtype = weight, .gradient_dtype = gradient};
  auto units = test::make_units(config, storage);
  const auto list = test::pointers(units);
  Decoder decoder(config, list);
  auto exact = reference::copy_parameters(list), rounded = reference::copy_parameters(list, weight);
  const auto batch = test::random_batch({.vocab = 96, .batch = 20, .time = 32}, 0, storage.device);
  const double scale = weight == at::kHalf ? 64 : 1;  // f16 needs room below: what the loss scale is for
  const auto loss = decoder.forward_backward(batch.tokens, batch.targets, at::full({}, scale, batch.tokens.options().dtype(at::kFloat)));
  const auto expected = reference::loss_sum(config, exact, batch.tokens, batch.targets);
  expected.backward();
  (reference::loss_sum(config, rounded, batch.tokens, batch.targets) * scale).backward();
  EXPECT_NEAR(loss.item<double>(), expected.item<double>(), 1e-3 * expected.item<double>());
  const auto rms = [](const at::Tensor& t) { return t.pow(2).mean().sqrt().item<double>(); };
  for (const auto* unit : list)
    for (const auto& [name, view] : unit->pieces_of(unit->gradients())) {
      const auto wanted = exact.at(name).grad().to(at::kDouble);
      const auto off = view.to(at::kDouble) / scale - wanted;
      const double usual = rms(rounded.at(name).grad().to(at::kDouble) / scale - wanted);
      const double slack = wanted.numel() < 64 ? 1.75 : 1.25;  // how far 16 numbers are off is itself uncertain by a quarter
      EXPECT_LE(rms(off), slack * usual) << name << ", of " << rms(wanted);
      const auto allowed = 7 * usual + test::half_step(weight) * wanted.abs();
      EXPECT_LE((off.abs() - allowed).max().item<double>(), 0) << name << ", where ATen is usually " << usual << " off";
    }
}

INSTANTIATE_TEST_SUITE_P(Types, SixteenBit,
                         testing::Values(Types{at::kBFloat16, at::kBFloat16}, Types{at::kBFloat16, at::kFloat}, Types{at::kHalf, at::kHalf},
                                         Types{at::kHalf, at::kFloat}),
                         [](const auto& info) {
                           return std::string(c10::toString(info.param.weight)) + "_" + c10::toString(info.param.gradient);
                         });

}  // namespace
}  // namespace lockstep::model
