// Batch plans for any number of ranks, and the sizes of models.
#include <cmath>

#include "layout/decoder.h"
#include "unit/config/support.h"
#include "support/source_folder/source_folder.h"

namespace lockstep::config {
namespace {

struct PlanCase {
  std::int64_t batch, accumulation, global;  // 0: left out
  int ranks;
  std::int64_t then_batch, then_accumulation, then_global;
};

TEST(ConfigPlan, WhatIsLeftOutFollows) {
  const PlanCase cases[] = {
      {0, 0, 0, 1, 8, 1, 8},   {0, 0, 0, 4, 8, 1, 32},  {4, 0, 0, 3, 4, 1, 12},   {0, 5, 0, 2, 8, 5, 80},       {4, 2, 0, 3, 4, 2, 24},
      {0, 0, 64, 2, 8, 4, 64}, {0, 0, 6, 2, 3, 1, 6},   {0, 0, 22, 1, 2, 11, 22}, {0, 0, 4, 4, 1, 1, 4},        {4, 0, 64, 2, 4, 8, 64},
      {0, 4, 64, 2, 8, 4, 64}, {4, 8, 64, 2, 4, 8, 64}, {1, 0, 64, 8, 1, 8, 64},  {16, 0, 256, 1, 16, 16, 256}, {0, 1, 7, 7, 1, 1, 7},
  };
  for (const PlanCase& c : cases) {
    RunConfig config;
    config.trainer.batch_size = c.batch;
    config.trainer.gradient_accumulation = c.accumulation;
    config.trainer.global_batch_size = c.global;
    const BatchPlan plan = plan_batch(config, c.ranks);
    SCOPED_TRACE(fmt::format("{} x {} = {} on {}", c.batch, c.accumulation, c.global, c.ranks));
    EXPECT_EQ(plan.batch_size, c.then_batch);
    EXPECT_EQ(plan.gradient_accumulation, c.then_accumulation);
    EXPECT_EQ(plan.global_batch_size, c.then_global);
    EXPECT_EQ(plan.batch_size * plan.gradient_accumulation * c.ranks, plan.global_batch_size);
  }
}

// The values an error names do divide.
TEST(ConfigPlan, NamedValuesWork) {
  RunConfig config;
  config.trainer.global_batch_size = 100;
  config.trainer.batch_size = 8;
  EXPECT_EQ(mistake([&] { (void)plan_batch(config, 3); }),
            "[config] trainer.global_batch_size = 100 does not divide by batch_size 8 x 3 ranks (= 24). Use global_batch_size 96 or 120.");
  for (const std::int64_t named : {96, 120}) {
    config.trainer.global_batch_size = named;
    EXPECT_NO_THROW((void)plan_batch(config, 3));
  }
  config.trainer.global_batch_size = 2;
  config.trainer.batch_size = 0;
  EXPECT_EQ(mistake([&] { (void)plan_batch(config, 4); }),
            "[config] trainer.global_batch_size = 2 does not divide by 4 ranks. Use global_batch_size 4.");
}

TEST(ConfigPlan, LearningRateScaling) {
  RunConfig config;
  config.trainer.learning_rate = 0.01;
  EXPECT_EQ(plan_batch(config, 4).learning_rate, 0.01);
  config.trainer.lr_scaling = LrScaling::linear;
  EXPECT_EQ(plan_batch(config, 4).learning_rate, 0.04);
  EXPECT_EQ(plan_batch(config, 1).learning_rate, 0.01);
  config.trainer.lr_scaling = LrScaling::sqrt;
  EXPECT_EQ(plan_batch(config, 4).learning_rate, 0.02);
}

TEST(ConfigPlan, ParameterCounts) {
  // Llama 3.1 8B is published with 8,030,261,248 parameters.
  const RunConfig large = load({.file = test::source_folder() + "/models/large.yaml", .environment = {}, .assignments = {}}).values;
  EXPECT_EQ(layout::count_parameters(large.model), 8'030'261'248);
  const RunConfig nano = load({.file = test::source_folder() + "/models/nano.yaml", .environment = {}, .assignments = {}}).values;
  EXPECT_NEAR(static_cast<double>(layout::count_parameters(nano.model)), 10e6, 0.5e6);
  const RunConfig small = load({.file = test::source_folder() + "/models/small.yaml", .environment = {}, .assignments = {}}).values;
  EXPECT_NEAR(static_cast<double>(layout::count_parameters(small.model)), 124e6, 2e6);

  ModelConfig tiny{.hidden_size = 8, .num_layers = 1, .num_heads = 2, .kv_heads = 1, .intermediate_size = 16, .vocab_size = 10};
  const std::int64_t plain = 80 + (2 * 8 + 64 + 2 * 32 + 64 + 3 * 128) + 8;
  EXPECT_EQ(layout::count_parameters(tiny), plain);
  tiny.qkv_bias = true;
  EXPECT_EQ(layout::count_parameters(tiny), plain + 8 + 4 + 4);
  tiny.qk_norm = true;
  EXPECT_EQ(layout::count_parameters(tiny), plain + 16 + 8);
  tiny.tie_embeddings = false;
  EXPECT_EQ(layout::count_parameters(tiny), plain + 24 + 80);
}

TEST(ConfigPlan, DefaultsOfTheShape) {
  const ModelConfig model = with_defaults({.hidden_size = 768, .num_heads = 12});
  EXPECT_EQ(model.intermediate_size, 2048);
  EXPECT_EQ(with_defaults({.hidden_size = 100, .num_heads = 4}).intermediate_size, 320);
  EXPECT_TRUE(with_defaults(model) == model);
}

}  // namespace
}  // namespace lockstep::config
