// What is proposed fits when it is planned again, and nothing smaller would have done.
#include "front/plan/advice.h"

#include <gtest/gtest.h>

#include "front/job/memory_advice.h"

namespace lockstep::plan {
namespace {

constexpr std::int64_t gib = std::int64_t{1} << 30;

// Of the size of an 8B model.
config::RunConfig eight_billion() {
  config::RunConfig config;
  config.model = config::with_defaults({.name = "8b",
                                        .hidden_size = 4096,
                                        .num_layers = 32,
                                        .num_heads = 32,
                                        .kv_heads = 8,
                                        .intermediate_size = 14336,
                                        .vocab_size = 128256,
                                        .max_seq_len = 2048,
                                        .dtype = config::DType::bf16});
  config.model.tie_embeddings = false;
  config.data.seq_len = 2048;
  config.trainer.batch_size = 4;
  return config;
}

MemoryPlan planned(const config::RunConfig& config, int ranks, std::int64_t bytes) {
  return plan_memory(config, {.ranks = ranks, .device_bytes = bytes});
}

bool has(const Change& change, const std::string& setting) {
  return std::find(change.settings.begin(), change.settings.end(), setting) != change.settings.end();
}

TEST(Advice, NothingIsChangedThatFits) {
  const Advice advice = advise(planned(eight_billion(), 8, 200 * gib));
  ASSERT_EQ(advice.changes.size(), 1u);
  EXPECT_TRUE(advice.changes[0].settings.empty());
  EXPECT_GE(advice.largest_batch.value_or(0), 4);
}

TEST(Advice, PlacementsComeBeforeWhateverChangesNumbers) {
  const Advice advice = advise(planned(eight_billion(), 8, 80 * gib));
  ASSERT_EQ(advice.changes.size(), 1u) << "the same training is there: nothing else is offered";
  EXPECT_EQ(advice.changes[0].settings, std::vector<std::string>{"parallel.shard=optimizer"});
  EXPECT_LE(advice.changes[0].memory.total(), 80 * gib);
  const Advice smaller = advise(planned(eight_billion(), 8, 24 * gib));
  ASSERT_FALSE(smaller.changes.empty());
  EXPECT_EQ(smaller.changes[0].effect, "the same training");
  EXPECT_TRUE(has(smaller.changes[0], "parallel.shard=full"));
}

// What auto chooses takes at most what it may: where one policy everywhere fits, so does it.
TEST(Advice, AutomaticRecomputationFitsWhereAnyDoes) {
  using enum config::ShardKind;
  using config::Recompute;
  for (const auto& [shard, groups] : {std::pair{none, 1}, {optimizer, 1}, {gradients, 1}, {full, 1}, {full, 2}}) {
    for (const std::int64_t accumulation : {1, 4, 32}) {
      for (const std::int64_t samples : {1, 4}) {
        for (const auto method : {config::Optimizer::adamw, config::Optimizer::adafactor}) {
          config::RunConfig config = eight_billion();
          config.parallel.shard = shard;
          config.parallel.replicate = groups;
          config.trainer.gradient_accumulation = accumulation;
          config.trainer.batch_size = samples;
          config.trainer.optimizer = method;
          for (const auto everywhere : {Recompute::norms, Recompute::qkv, Recompute::blocks}) {
            config::RunConfig strict = config;
            strict.trainer.recompute = everywhere;
            const std::int64_t least = planned(strict, 8, std::int64_t{1} << 50).memory.total();
            for (const std::int64_t more : {std::int64_t{0}, gib / 2, 3 * gib, 10 * gib}) {
              if (planned(strict, 8, least + more).memory.total() > least + more) continue;
              EXPECT_LE(planned(config, 8, least + more).memory.total(), least + more)
                  << int(shard) << " in " << groups << " groups, " << accumulation << " micro-batches of " << samples << ", policy "
                  << int(everywhere) << ", " << least + more;
            }
          }
        }
      }
    }
  }
}

TEST(Advice, OneSmallGpuIsToldOfAdaptersAndOfMoreGpus) {
  const Advice advice = advise(planned(eight_billion(), 1, 24 * gib));
  EXPECT_FALSE(advice.largest_batch);
  ASSERT_GE(advice.changes.size(), 2u);
  EXPECT_EQ(advice.changes[0].effect, "the same training");
  EXPECT_GT(advice.changes[0].ranks, 1);
  EXPECT_TRUE(has(advice.changes.back(), "model.load_in_4bit=true") && has(advice.changes.back(), "lora.enabled=true"));
  for (const Change& change : advice.changes) EXPECT_NE(verdict_of(change.memory, 24 * gib), Verdict::too_large) << change.effect;
}

TEST(Advice, TheLargestBatchIsTheLargest) {
  config::RunConfig config = eight_billion();
  config.lora.enabled = true;
  const MemoryPlan plan = planned(config, 1, 40 * gib);
  const std::int64_t most = advise(plan).largest_batch.value_or(0);
  ASSERT_GT(most, 1);
  const auto verdict = [&](std::int64_t samples) {
    config.trainer.batch_size = samples;
    return verdict_of(planned(config, 1, 40 * gib).memory, 40 * gib);
  };
  EXPECT_NE(verdict(most), Verdict::too_large);
  EXPECT_EQ(verdict(most + 1), Verdict::too_large);
}

TEST(Advice, AdaptersOfNoModelAreToldSo) {
  constexpr std::string_view words = "no model is named, so this is of the default shape";
  config::RunConfig config;
  config.model = config::with_defaults({});
  EXPECT_EQ(to_text(planned(config, 2, 24 * gib)).find(words), std::string::npos);
  config.lora.enabled = true;
  EXPECT_NE(to_text(planned(config, 2, 24 * gib)).find(words), std::string::npos);
  EXPECT_NE(to_text(planned(config, 2, 24 * gib)).find("model.path=DIR"), std::string::npos) << "--model is the file there";
  config = eight_billion();
  config.lora.enabled = true;
  EXPECT_EQ(to_text(planned(config, 2, 24 * gib)).find(words), std::string::npos);
}

TEST(Advice, ARankThatRanOutHearsWhatFits) {
  job::Setup setup;
  setup.settings.values = eight_billion();
  setup.on_gpus = true;
  setup.job.world_size = 4;
  const std::string text = job::after_full_memory(setup, {.name = "GPU 2 (a card)", .bytes = 48 * gib, .taken = 8 * gib});
  EXPECT_NE(text.find("GPU 2 (a card) has 48.0 GiB, of which others hold 8.0 GiB now"), std::string::npos) << text;
  const std::string named = job::after_full_memory(
      setup, {.name = "GPU 2 (a card)", .bytes = 48 * gib, .taken = 8 * gib, .holders = {"pid 4711 python, 6.0 GiB", "pid 12"}});
  EXPECT_NE(named.find("others hold 8.0 GiB now: pid 4711 python, 6.0 GiB; pid 12.\n"), std::string::npos) << named;
  EXPECT_NE(text.find("optimizer states 59.8 GiB"), std::string::npos) << text;
  EXPECT_NE(text.find("What fits: parallel.shard=full"), std::string::npos) << text;
  EXPECT_TRUE(job::tells_of_full_memory("rank 1 failed: [memory] the device's memory is full: CUDA out of memory"));
  const std::string plenty = job::after_full_memory(setup, {.name = "GPU 2 (a card)", .bytes = 400 * gib});
  EXPECT_NE(plenty.find("That should fit, and did not. What takes less: parallel.shard="), std::string::npos) << plenty;
  EXPECT_TRUE(job::tells_of_full_memory("[memory] the machine's memory is full: not even one sample of 16 tokens fits on rank 1."));
  EXPECT_TRUE(job::tells_of_full_memory("[memory] there is no room for 1.0 GiB of host memory, in which gradients"));
  setup.gpu_bytes = 48 * gib;
  EXPECT_NE(job::memory_note(setup).value_or("").find("likely to run out of memory"), std::string::npos);
  setup.gpu_bytes = 200 * gib;
  EXPECT_FALSE(job::memory_note(setup));
}

}  // namespace
}  // namespace lockstep::plan
