// Names and shapes of parameters, how units lay them out, and what they start as.
#include <ATen/TensorOperators.h>
#include <ATen/ops/equal.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "layout/flops.h"
#include "support/reference/decoder_fixture.h"

namespace lockstep::model {
namespace {

config::ModelConfig small() {
  config::ModelConfig c;
  c.hidden_size = 48;
  c.num_layers = 2;
  c.num_heads = 6;
  c.kv_heads = 2;
  c.intermediate_size = 80;
  c.vocab_size = 50;
  return c;
}

std::map<std::string, std::vector<std::int64_t>> pieces(const config::ModelConfig& config) {
  std::map<std::string, std::vector<std::int64_t>> found;
  for (const auto& unit : decoder_units(config))
    for (const auto& leaf : unit.leaves)
      for (const auto& piece : leaf.pieces) found[piece.name] = piece.shape;
  return found;
}

TEST(Layout, HuggingFaceNames) {
  auto config = small();
  auto found = pieces(config);
  EXPECT_EQ(found.size(), 2u + 2 * 9);
  EXPECT_EQ(found["model.embed_tokens.weight"], (std::vector<std::int64_t>{50, 48}));
  EXPECT_EQ(found["model.norm.weight"], (std::vector<std::int64_t>{48}));
  EXPECT_EQ(found["model.layers.1.self_attn.q_proj.weight"], (std::vector<std::int64_t>{48, 48}));
  EXPECT_EQ(found["model.layers.1.self_attn.k_proj.weight"], (std::vector<std::int64_t>{16, 48}));
  EXPECT_EQ(found["model.layers.0.self_attn.o_proj.weight"], (std::vector<std::int64_t>{48, 48}));
  EXPECT_EQ(found["model.layers.0.mlp.up_proj.weight"], (std::vector<std::int64_t>{80, 48}));
  EXPECT_EQ(found["model.layers.0.mlp.down_proj.weight"], (std::vector<std::int64_t>{48, 80}));
  EXPECT_FALSE(found.contains("lm_head.weight"));
  config.tie_embeddings = false;
  config.qkv_bias = config.qk_norm = true;
  config.head_dim = 16;
  found = pieces(config);
  EXPECT_EQ(found["lm_head.weight"], (std::vector<std::int64_t>{50, 48}));
  EXPECT_EQ(found["model.layers.0.self_attn.v_proj.bias"], (std::vector<std::int64_t>{32}));
  EXPECT_EQ(found["model.layers.0.self_attn.q_proj.weight"], (std::vector<std::int64_t>{96, 48}));
  EXPECT_EQ(found["model.layers.0.self_attn.k_norm.weight"], (std::vector<std::int64_t>{16}));
}

TEST(Layout, UnitsAreAlignedAndViewsDoNotOverlap) {
  for (const auto& spec : decoder_units(small())) {
    Unit unit(spec, {});
    EXPECT_EQ(unit.elements() % 256, 0);
    EXPECT_EQ(unit.elements(), flat_elements(spec));
    for (std::size_t i = 0; i < spec.leaves.size(); ++i) {
      EXPECT_EQ(unit.offset(i) % 64, 0);
      EXPECT_EQ(unit.offset(i) < unit.decayed(), spec.leaves[i].decay) << spec.leaves[i].name;
    }
    auto count = at::zeros({unit.elements()});
    std::int64_t numbers = 0;
    for (const auto& [name, view] : unit.pieces_of(count)) {
      view.add_(1);
      numbers += view.numel();
    }
    EXPECT_EQ(count.max().item<float>(), 1) << "no number belongs to two pieces";
    EXPECT_EQ(count.sum().item<float>(), float(numbers));
  }
}

TEST(Layout, SixteenBitUnitsKeepAMaster) {
  const auto spec = decoder_units(small())[1];
  Unit plain(spec, {}), half(spec, {.weight_dtype = at::kBFloat16, .gradient_dtype = at::kBFloat16}), frozen(spec, {.trainable = false});
  EXPECT_EQ(plain.master().const_data_ptr(), plain.weights().const_data_ptr());
  EXPECT_EQ(half.master().scalar_type(), at::kFloat);
  EXPECT_NE(half.master().const_data_ptr(), half.weights().const_data_ptr());
  EXPECT_FALSE(frozen.gradients().defined());
  EXPECT_FALSE(frozen.master().defined());
}

TEST(Initialize, FollowsFromSeedAndNameAlone) {
  auto deep = small();
  deep.num_layers = 4;
  deep.tie_embeddings = false;
  const auto two = test::make_units(small(), {}, 3), four = test::make_units(deep, {}, 3), other = test::make_units(small(), {}, 4);
  EXPECT_TRUE(at::equal(two[2]->weights(), four[2]->weights())) << "a block's weights do not depend on the rest of the model";
  EXPECT_FALSE(at::equal(two[2]->weights(), other[2]->weights()));
  EXPECT_FALSE(at::equal(two[1]->weight(0), two[2]->weight(0)));
  const auto half = test::make_units(small(), {.weight_dtype = at::kBFloat16, .gradient_dtype = at::kBFloat16}, 3);
  EXPECT_TRUE(at::equal(half[2]->master(), two[2]->weights())) << "nor on the type";
  EXPECT_TRUE(at::equal(half[2]->weights(), two[2]->weights().to(at::kBFloat16)));
}

TEST(Initialize, NormsAreOneMatricesAreNormalPaddingIsZero) {
  const auto units = test::make_units(small(), {}, 3);
  const auto& block = *units[1];
  EXPECT_NEAR(block.weight(0).std().item<double>(), 0.02, 0.001);
  EXPECT_EQ(block.weight(4).min().item<double>(), 1);
  auto used = at::zeros({block.elements()});
  for (const auto& [name, view] : block.pieces_of(used)) view.fill_(1);
  EXPECT_EQ((block.weights() * (1 - used)).abs().sum().item<double>(), 0);
}

TEST(Layout, RefusesShapesThatCannotBe) {
  const auto message = [](auto change) {
    auto config = small();
    change(config);
    try {
      decoder_units(config);
    } catch (const base::UserError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_NE(message([](auto& c) { c.num_heads = 5; }).find("hidden_size 48 does not divide by num_heads 5"), std::string::npos);
  EXPECT_NE(message([](auto& c) { c.kv_heads = 4; }).find("num_heads 6 does not divide by kv_heads 4"), std::string::npos);
  EXPECT_NE(message([](auto& c) { c.head_dim = 7; }).find("head_dim 7 is odd"), std::string::npos);
  EXPECT_NE(message([](auto& c) { c.num_layers = 0; }).find("num_layers 0"), std::string::npos);
}

TEST(Flops, CountsSixPerParameterAndTheCausalHalfOfAttention) {
  auto config = small();
  const double block = 48.0 * (48 + 32) + 48 * 48 + 3 * 48 * 80;
  const Flops flops = flops_per_token(config, {}, 10);
  EXPECT_DOUBLE_EQ(flops.projections, 6 * 2 * block);
  EXPECT_DOUBLE_EQ(flops.others, 6 * (50 * 48 + 2 * 48 * 10.0));
  EXPECT_DOUBLE_EQ(flops_per_token(config, {}, 0).others, 6 * 50 * 48);
}

TEST(Flops, NobodyComputesTheGradientOfAFrozenMatrix) {
  auto config = small();
  config::LoraConfig lora{.enabled = true, .rank = 4};
  const double block = 48.0 * (48 + 32) + 48 * 48 + 3 * 48 * 80, attention = 6 * 2 * 48 * 10.0;
  // A and B of q, k, v, o, gate, up, down.
  const double adapters = 2 * 4 * ((48 + 48) + 2 * (48 + 16) + (48 + 48) + 2 * (48 + 80) + (80 + 48));
  const Flops flops = flops_per_token(config, lora, 10);
  EXPECT_DOUBLE_EQ(flops.projections, 4 * 2 * block);
  EXPECT_DOUBLE_EQ(flops.others, 4 * 50 * 48 + 6 * adapters + attention);
  lora.target_modules = {"q_proj"};
  lora.layers_to_transform = {1};
  EXPECT_DOUBLE_EQ(flops_per_token(config, lora, 10).others, 4 * 50 * 48 + 6 * 4 * (48 + 48) + attention);
  config.tie_embeddings = false;
  lora.modules_to_save = {"lm_head"};
  EXPECT_DOUBLE_EQ(flops_per_token(config, lora, 10).others, 6 * 50 * 48 + 6 * 4 * (48 + 48) + attention);
}

}  // namespace
}  // namespace lockstep::model
