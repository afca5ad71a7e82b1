// Files, environment and command line: what each spelling sets, who wins, and where a value is said to come from.
#include "config/table/option.h"
#include "config/table/value.h"
#include "unit/config/support.h"

namespace lockstep::config {
namespace {

struct SpellingCase {
  const char* text;      // of a file
  const char* key;       // then this key
  const char* expected;  // reads so in the resolved file
};

void PrintTo(const SpellingCase& c, std::ostream* out) { *out << c.text; }

std::string resolved_value(const Settings& settings, const std::string& key) {
  const Option& option = option_of(key);
  return write_value(option, option.get(settings.values));
}

class ConfigSpelling : public testing::TestWithParam<SpellingCase> {};

TEST_P(ConfigSpelling, Sets) { EXPECT_EQ(resolved_value(load_text(GetParam().text), GetParam().key), GetParam().expected); }

INSTANTIATE_TEST_SUITE_P(
    Files, ConfigSpelling,
    testing::Values(
        SpellingCase{"trainer:\n  learning_rate: 1e-3\n", "trainer.learning_rate", "0.001"},
        SpellingCase{"trainer.learning_rate: 1e-3\n", "trainer.learning_rate", "0.001"},
        SpellingCase{"learning_rate: 1e-3\n", "trainer.learning_rate", "0.001"},
        SpellingCase{"trainer:\n  lr: .5\n", "trainer.learning_rate", "0.5"},
        SpellingCase{"trainer:\n  distributed: {backend: GLOO}\n", "trainer.distributed.backend", "gloo"},
        SpellingCase{"trainer:\n  distributed.backend: gloo\n", "trainer.distributed.backend", "gloo"},
        SpellingCase{"trainer.distributed:\n  gpu_ids: [2, 3]\n", "trainer.distributed.gpu_ids", "[2, 3]"},
        SpellingCase{"device_indexes: \"0,1\"\n", "trainer.distributed.gpu_ids", "[0, 1]"},
        SpellingCase{"device_indexes: 3\n", "trainer.distributed.gpu_ids", "[3]"},
        SpellingCase{"gpus: 0-2,5\n", "trainer.distributed.gpu_ids", "[0, 1, 2, 5]"},
        SpellingCase{"gpus: all\n", "trainer.distributed.gpu_ids", "[]"},
        SpellingCase{"per_device_train_batch_size: 3\n", "trainer.batch_size", "3"},
        SpellingCase{"trainer:\n  gradient_accumulation_steps: 3\n", "trainer.gradient_accumulation", "3"},
        SpellingCase{"num_train_epochs: 2.5\n", "trainer.num_epochs", "2.5"},
        SpellingCase{"save_total_limit: 7\n", "trainer.max_checkpoints", "7"},
        SpellingCase{"trainer:\n  ddp_bucket_cap_mb: 50\n", "parallel.bucket_cap_mb", "50"},
        SpellingCase{"trainer:\n  ddp_find_unused_parameters: yes\n", "parallel.find_unused_parameters", "true"},
        SpellingCase{"dataloader_num_workers: 4\n", "data.workers", "4"},
        SpellingCase{"dataloader_pin_memory: false\n", "data.pin_memory", "false"},
        SpellingCase{"enable_multi_gpu: false\n", "trainer.distributed.enabled", "false"},
        SpellingCase{"distributed_backend: nccl\n", "trainer.distributed.backend", "nccl"},
        SpellingCase{"sequence_length: 64\n", "data.seq_len", "64"},
        SpellingCase{"model:\n  num_hidden_layers: 3\n", "model.num_layers", "3"},
        SpellingCase{"model:\n  torch_dtype: bfloat16\n", "model.dtype", "bf16"},
        SpellingCase{"train_dtype: BFLOAT_16\n", "model.dtype", "bf16"}, SpellingCase{"bf16: true\nfp16: false\n", "model.dtype", "bf16"},
        SpellingCase{"fp16: true\n", "model.dtype", "f16"}, SpellingCase{"bf16: false\n", "model.dtype", "f32"},
        SpellingCase{"use_cpu: true\n", "trainer.target_device", "cpu"},
        SpellingCase{"trainer:\n  target_device: gpu\n", "trainer.target_device", "cuda"},
        SpellingCase{"lr_scheduler_type: constant_with_warmup\n", "trainer.lr_schedule", "constant"},
        SpellingCase{"lr_scheduler_type: warmup_stable_decay\n", "trainer.lr_schedule", "wsd"},
        SpellingCase{"output_dir: out\n", "output", "out"}, SpellingCase{"trainer:\n  max_steps: 1e3\n", "trainer.max_steps", "1000"},
        SpellingCase{"model:\n  kv_heads: auto\n", "model.kv_heads", "8"}, SpellingCase{"nproc_per_node: gpu\n", "parallel.ranks", "0"},
        SpellingCase{"zero_stage: 2\n", "parallel.shard", "gradients"},
        SpellingCase{"fsdp: shard_grad_op\n", "parallel.shard", "gradients"}, SpellingCase{"fsdp: true\n", "parallel.shard", "full"},
        SpellingCase{"fsdp: false\n", "parallel.shard", "none"}, SpellingCase{"fsdp: fsdp2\n", "parallel.shard", "full"},
        SpellingCase{"parallel: {shard: FSDP}\n", "parallel.shard", "full"}, SpellingCase{"trainer:\n  seed:\n", "trainer.seed", "1234"},
        SpellingCase{"trainer:\n", "trainer.seed", "1234"}, SpellingCase{"trainer:\n  seed: null\n", "trainer.seed", "1234"},
        SpellingCase{"model: {num_experts: 0, mamba_layers: []}\nlora:\nload_in_4bit: false\n", "model.num_layers", "8"},
        SpellingCase{"monitor:\n  sample_prompt: 'it''s # 1'\n", "monitor.sample_prompt", "\"it's # 1\""},
        SpellingCase{"{\n\t\"trainer\": {\"seed\": 5, \"distributed\": {\"gpu_ids\": [1]}}\n}", "trainer.seed", "5"},
        SpellingCase{"", "trainer.seed", "1234"}, SpellingCase{"# nothing but a comment\n", "trainer.seed", "1234"}));

TEST(ConfigLayers, LaterOnesWin) {
  const std::string file = "trainer:\n  seed: 1\n  warmup_steps: 1\n  max_steps: 10\n  log_interval: 5\n";
  const Settings settings = load_text(
      file, {"--warmup-steps", "3", "trainer.max_steps=20", "--max-steps", "30"},
      {{"LOCKSTEP_TRAINER_SEED", "2"}, {"LOCKSTEP_TRAINER_WARMUP_STEPS", "2"}, {"LOCKSTEP_LIBTORCH", "/x"}, {"LOCKSTEP_NAME", ""}});
  EXPECT_EQ(settings.values.trainer.seed, 2);
  EXPECT_EQ(settings.values.trainer.warmup_steps, 3);
  EXPECT_EQ(settings.values.trainer.max_steps, 30);
  EXPECT_EQ(settings.source("trainer.seed").text(), "LOCKSTEP_TRAINER_SEED");
  EXPECT_EQ(settings.source("trainer.warmup_steps").text(), "--warmup-steps");
  EXPECT_EQ(settings.source("trainer.max_steps").text(), "--max-steps");
  EXPECT_TRUE(settings.source("trainer.log_interval").text().ends_with("run.yaml:5"));
  EXPECT_EQ(settings.source("trainer.learning_rate").text(), "default");
  EXPECT_EQ(settings.source("model.head_dim").text(), "follows from model.hidden_size / model.num_heads");
  EXPECT_EQ(settings.source("name").origin, Origin::standard);  // an empty variable sets nothing
}

TEST(ConfigLayers, EveryKeyHasASource) {
  const Settings settings = load({});
  for (const std::string& key : known_keys()) EXPECT_NO_THROW((void)settings.source(key)) << key;
  EXPECT_EQ(settings.sources.size(), known_keys().size());
}

TEST(ConfigLayers, ShapeIsFilledIn) {
  const RunConfig config = load_text("model:\n  hidden_size: 384\n  num_heads: 6\n  max_seq_len: 64\n").values;
  EXPECT_EQ(config.model.kv_heads, 6);
  EXPECT_EQ(config.model.head_dim, 64);
  EXPECT_EQ(config.model.intermediate_size, 1024);
  EXPECT_EQ(config.data.seq_len, 64);
}

TEST(ConfigLayers, HeadDimFreesTheWidth) {
  EXPECT_EQ(load_text("model: {hidden_size: 100, num_heads: 7, head_dim: 16}\n").values.model.head_dim, 16);
}

TEST(ConfigFile, BinaryAndHugeFilesAreNotRead) {
  EXPECT_NE(mistake([] { load_text(std::string("model\0", 6)); }).find("binary data"), std::string::npos);
  EXPECT_NE(mistake([] { load_text(std::string((16u << 20) + 1, ' ')); }).find("larger than 16.0 MiB"), std::string::npos);
}

TEST(ConfigFile, NumbersBeyondADoubleInJson) {
  EXPECT_NE(
      mistake([] { load_text(R"({"trainer": {"learning_rate": 1e999}})"); }).find(":1: trainer.learning_rate = 1e999 must be a number"),
      std::string::npos);
}

TEST(ConfigFile, EscapesInJson) {
  const Settings settings = load_text(R"({"monitor": {"sample_prompt": "a \"b\"\n\u00e9 \\ /"}})");
  EXPECT_EQ(settings.values.monitor.sample_prompt, "a \"b\"\n\xc3\xa9 \\ /");
}

}  // namespace
}  // namespace lockstep::config
