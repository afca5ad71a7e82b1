// Flags in every spelling people use.
#include "unit/config/support.h"

namespace lockstep::config {
namespace {

using Args = std::vector<std::string>;

TEST(ConfigCommandLine, TheExampleOfTheGuide) {
  const TemporaryFolder folder;
  const std::string file = folder.write("nano.yaml", "model:\n  num_layers: 2\n").string();
  const CommandLine line = parse_command_line(Args{"-f", file, "-d", "data.bin", "--gpus", "0,1", "--sync-backend", "nccl", "--dtype",
                                                   "bf16", "--prefetch", "4", "trainer.learning_rate=3e-4"},
                                              {});
  EXPECT_TRUE(line.leftover.empty());
  const RunConfig config = load(line.request).values;
  EXPECT_EQ(config.model.num_layers, 2);
  EXPECT_EQ(config.data.path, "data.bin");
  EXPECT_EQ(config.trainer.distributed.gpu_ids, (std::vector<std::int64_t>{0, 1}));
  EXPECT_EQ(config.trainer.distributed.backend, Backend::nccl);
  EXPECT_EQ(config.model.dtype, DType::bf16);
  EXPECT_EQ(config.data.prefetch, 4);
  EXPECT_EQ(config.trainer.learning_rate, 3e-4);
}

TEST(ConfigCommandLine, EveryFlagOfTheIssueExists) {
  const RunConfig config = load_args({"--output",
                                      "o",
                                      "--name",
                                      "n",
                                      "--num-gpus",
                                      "0",
                                      "--ranks",
                                      "2",
                                      "--device",
                                      "cpu",
                                      "--distributed-backend",
                                      "gloo",
                                      "--seq-len",
                                      "32",
                                      "--batch-size",
                                      "2",
                                      "--grad-accum",
                                      "3",
                                      "--global-batch-size",
                                      "12",
                                      "--max-steps",
                                      "9",
                                      "--resume",
                                      "auto",
                                      "--max-checkpoints",
                                      "1",
                                      "--headless",
                                      "--nnodes",
                                      "2",
                                      "--node-rank",
                                      "1",
                                      "--master-addr",
                                      "h",
                                      "--master-port",
                                      "1234",
                                      "--spawn",
                                      "--no-distributed-data-loading",
                                      "--dry-run",
                                      "--allow-new-data",
                                      "--max-restarts",
                                      "2",
                                      "--data",
                                      "x.txt"})
                               .values;
  EXPECT_EQ(config.output, "o");
  EXPECT_EQ(config.name, "n");
  EXPECT_EQ(config.parallel.ranks, 2);
  EXPECT_EQ(config.trainer.target_device, DeviceKind::cpu);
  EXPECT_EQ(config.trainer.distributed.backend, Backend::gloo);
  EXPECT_EQ(config.data.seq_len, 32);
  EXPECT_EQ(config.trainer.batch_size, 2);
  EXPECT_EQ(config.trainer.gradient_accumulation, 3);
  EXPECT_EQ(config.trainer.global_batch_size, 12);
  EXPECT_EQ(config.trainer.max_steps, 9);
  EXPECT_EQ(config.checkpoint.resume, "auto");
  EXPECT_EQ(config.trainer.max_checkpoints, 1);
  EXPECT_TRUE(config.monitor.headless);
  EXPECT_EQ(config.parallel.nnodes, 2);
  EXPECT_EQ(config.parallel.node_rank, 1);
  EXPECT_EQ(config.parallel.master_addr, "h");
  EXPECT_EQ(config.parallel.master_port, 1234);
  EXPECT_TRUE(config.launch.spawn);
  EXPECT_TRUE(config.launch.dry_run);
  EXPECT_FALSE(config.data.distributed_loading);
  EXPECT_TRUE(config.data.allow_new_data);
  EXPECT_EQ(config.parallel.max_restarts, 2);
}

struct FlagCase {
  Args args;
  const char* key;
  const char* where;  // its source
};

TEST(ConfigCommandLine, Spellings) {
  const std::vector<FlagCase> cases = {
      {{"--nproc_per_node", "2"}, "parallel.ranks", "--nproc_per_node"},
      {{"--grad_accum=2"}, "trainer.gradient_accumulation", "--grad_accum"},
      {{"--gradient-accumulation-steps", "2"}, "trainer.gradient_accumulation", "--gradient-accumulation-steps"},
      {{"--per_device_train_batch_size=2"}, "trainer.batch_size", "--per_device_train_batch_size"},
      {{"--trainer.seed", "2"}, "trainer.seed", "--trainer.seed"},
      {{"--bucket-cap-mb", "2"}, "parallel.bucket_cap_mb", "--bucket-cap-mb"},
      {{"--headless=true"}, "monitor.headless", "--headless"},
      {{"--headless", "True"}, "monitor.headless", "--headless"},
      {{"--no_shuffle"}, "data.shuffle", "--no_shuffle"},
      {{"--bf16"}, "model.dtype", "--bf16"},
      {{"--bf16", "true"}, "model.dtype", "--bf16"},
      {{"-dx.bin"}, "data.path", "-d"},
      {{"-o", "x"}, "output", "-o"},
      {{"monitor.sample_prompt=a=b"}, "monitor.sample_prompt", "monitor.sample_prompt=a=b"},
      {{"seed=4"}, "trainer.seed", "seed=4"},
  };
  for (const FlagCase& c : cases) {
    const Settings settings = load_args(c.args);
    EXPECT_EQ(settings.source(c.key).text(), c.where);
    const Settings standard = load({});
    EXPECT_FALSE(settings.values == standard.values) << c.where;
  }
}

TEST(ConfigCommandLine, ValuesThatLookLikeFlags) {
  EXPECT_NE(mistake([] { load_args({"--max-steps", "-1"}); }).find("trainer.max_steps = -1"), std::string::npos);
  EXPECT_EQ(load_args({"--name=--odd"}).values.name, "--odd");
}

TEST(ConfigCommandLine, LeftoverAndHelp) {
  const CommandLine line = parse_command_line(Args{"out/a=b.txt", "--seed", "1", "x", "--", "--seed", "y"}, {});
  EXPECT_EQ(line.leftover, (Args{"out/a=b.txt", "x", "--seed", "y"}));
  EXPECT_EQ(load(line.request).values.trainer.seed, 1);
  EXPECT_FALSE(line.help);
  EXPECT_TRUE(parse_command_line(Args{"--seed", "1", "--help"}, {}).help);
}

}  // namespace
}  // namespace lockstep::config
