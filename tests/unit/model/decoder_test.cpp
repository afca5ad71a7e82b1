// The decoder's loss and every gradient against the plain autograd reference, over the shapes a model may have.
#include <ATen/TensorOperators.h>
#include <gtest/gtest.h>

#include "support/reference/decoder_fixture.h"
#include "support/reference/reference_decoder.h"
#include "rank/model/weights/whole_store.h"

namespace lockstep::model {
namespace {

struct Case {
  std::string name;
  config::ModelConfig config;
  std::int64_t batch = 2, time = 16;
  int micro_steps = 1;
  int ignored = 0;  // every n-th target is -100
  double scale = 1;
};

config::ModelConfig shape(std::int64_t hidden, std::int64_t layers, std::int64_t heads, std::int64_t kv_heads, std::int64_t vocab) {
  config::ModelConfig c;
  c.hidden_size = hidden;
  c.num_layers = layers;
  c.num_heads = heads;
  c.kv_heads = kv_heads;
  c.vocab_size = vocab;
  c.max_seq_len = 64;
  c.initializer_range = 0.08;  // large enough that every path matters
  return c;
}

template <typename F>
config::ModelConfig with(config::ModelConfig c, F change) {
  change(c);
  return c;
}

std::vector<Case> cases() {
  const auto untied = [](auto& c) { c.tie_embeddings = false; };
  return {
      {.name = "multi_head", .config = shape(64, 2, 4, 4, 96)},
      {.name = "grouped", .config = shape(64, 2, 4, 2, 96)},
      {.name = "one_kv_head", .config = shape(96, 1, 6, 1, 128)},
      {.name = "untied", .config = with(shape(64, 2, 4, 2, 96), untied)},
      {.name = "bias", .config = with(shape(64, 2, 4, 2, 96), [](auto& c) { c.qkv_bias = true; })},
      {.name = "head_norms", .config = with(shape(64, 2, 4, 2, 96), [](auto& c) { c.qk_norm = true; })},
      {.name = "wide_heads", .config = with(shape(64, 2, 4, 2, 96), [](auto& c) { c.head_dim = 32; })},
      {.name = "everything",
       .config = with(shape(64, 3, 4, 2, 97),
                      [](auto& c) {
                        c.qkv_bias = c.qk_norm = true;
                        c.tie_embeddings = false;
                        c.rope_theta = 500000;
                      })},
      {.name = "odd_vocabulary", .config = shape(64, 1, 4, 2, 101)},
      {.name = "odd_rows", .config = shape(64, 1, 4, 2, 96), .batch = 3, .time = 13},
      {.name = "padding", .config = shape(64, 2, 4, 2, 96), .ignored = 3},
      {.name = "nothing_to_train", .config = shape(64, 1, 4, 2, 96), .ignored = 1},
      {.name = "accumulation", .config = shape(64, 2, 4, 2, 96), .micro_steps = 3},
      {.name = "scaled", .config = shape(64, 2, 4, 2, 96), .scale = 1.0 / 512},
      {.name = "several_chunks", .config = shape(32, 1, 2, 1, 4100), .batch = 4, .time = 48, .ignored = 5},
  };
}

class DecoderAgainstReference : public testing::TestWithParam<Case> {};

test::Batch batch_of(const Case& c, int step) {
  return test::random_batch({.vocab = c.config.vocab_size, .batch = c.batch, .time = c.time, .ignored = c.ignored}, step, test::device());
}

TEST_P(DecoderAgainstReference, LossAndGradients) {
  const auto& c = GetParam();
  const auto device = test::device();
  auto units = test::make_units(c.config, {.device = device});
  const auto list = test::pointers(units);
  auto parameters = reference::copy_parameters(list);
  Decoder decoder(c.config, list);
  const auto scale = at::full({}, c.scale, at::TensorOptions().dtype(at::kFloat).device(device));
  for (int step = 0; step < c.micro_steps; ++step) {
    const auto [tokens, targets] = batch_of(c, step);
    const auto loss = decoder.forward_backward(tokens, targets, scale);
    const auto expected = reference::loss_sum(c.config, parameters, tokens, targets);
    (expected * c.scale).backward();
    EXPECT_NEAR(loss.item<double>(), expected.item<double>(), 1e-5 * std::abs(expected.item<double>()) + 1e-6);
    EXPECT_NEAR(decoder.loss_sum(tokens, targets).item<double>(), expected.item<double>(), 1e-5 * std::abs(expected.item<double>()) + 1e-6);
  }
  for (const auto* unit : list)
    for (const auto& [name, gradient] : unit->pieces_of(unit->gradients())) {
      const auto expected = parameters.at(name).grad();
      const auto difference = (gradient - expected).abs().max().item<double>(), size = expected.abs().max().item<double>();
      EXPECT_LE(difference, 2e-5 * size + 1e-7) << name << ": largest gradient " << size;
    }
}

TEST_P(DecoderAgainstReference, Logits) {
  const auto& c = GetParam();
  auto units = test::make_units(c.config, {.device = test::device()});
  const auto list = test::pointers(units);
  Decoder decoder(c.config, list);
  const auto [tokens, targets] = batch_of(c, 0);
  const auto expected = reference::logits(c.config, reference::copy_parameters(list), tokens).detach();
  EXPECT_LE((decoder.logits(tokens) - expected).abs().max().item<double>(), 2e-5 * expected.abs().max().item<double>());
}

TEST_P(DecoderAgainstReference, EachLeafIsAnnouncedOnceAndBlocksInBackwardOrder) {
  const auto& c = GetParam();
  auto units = test::make_units(c.config, {.device = test::device()});
  const auto list = test::pointers(units);
  std::vector<std::pair<std::size_t, std::size_t>> announced;
  WholeStore store(list);
  store.listen([&announced](std::size_t unit, std::size_t leaf) { announced.emplace_back(unit, leaf); });
  Decoder decoder(c.config, {}, store);
  const auto [tokens, targets] = batch_of(c, 0);
  decoder.forward_backward(tokens, targets, at::ones({}, tokens.options().dtype(at::kFloat)));
  std::size_t leaves = 0;
  for (const auto* unit : list) leaves += unit->spec().leaves.size();
  EXPECT_EQ(announced.size(), leaves);
  for (std::size_t i = 1; i < announced.size(); ++i) EXPECT_LE(announced[i].first, announced[i - 1].first);
  std::sort(announced.begin(), announced.end());
  EXPECT_EQ(std::unique(announced.begin(), announced.end()), announced.end());
}

INSTANTIATE_TEST_SUITE_P(Shapes, DecoderAgainstReference, testing::ValuesIn(cases()), [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace lockstep::model
