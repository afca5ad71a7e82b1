// Names of runs, the plan, the lines of progress, the environment of a worker, and where LibTorch is looked for.
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "config/config.h"
#include "front/show/display.h"
#include "front/job/naming.h"
#include "front/job/plan.h"
#include "front/show/plan_text.h"
#include "front/launch/launch.h"
#include "front/launch/libtorch.h"

namespace lockstep::app {
namespace {

using job::name_run;
using job::resume_command;
using job::RunPlan;
using show::step_line;
using show::to_text;

namespace fs = std::filesystem;

class AppTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = fs::temp_directory_path() / "lockstep-app-XXXXXX";
    folder_ = ::mkdtemp(name.data());
  }
  void TearDown() override { fs::remove_all(folder_); }
  void touch(const fs::path& path, const std::string& text = "") {
    fs::create_directories(path.parent_path());
    std::ofstream(path) << text;
  }
  config::RunConfig config() const {
    config::RunConfig config;
    config.output = folder_;
    config.model.name = "nano";
    return config;
  }
  fs::path folder_;
};

TEST_F(AppTest, RunsAreNamed) {
  config::RunConfig wanted = config();
  EXPECT_EQ(name_run(wanted, "slurm-7.0").name, "nano-slurm-7.0");
  EXPECT_EQ(name_run(wanted, std::nullopt).name.size(), std::string("nano-20260131-120000").size());
  wanted.name = "mine";
  EXPECT_EQ(name_run(wanted, "slurm-7.0").name, "mine");
  EXPECT_EQ(name_run(wanted, std::nullopt).reason, "");
}

TEST_F(AppTest, CheckpointsOfAnotherRunAreNotWrittenOver) {
  config::RunConfig wanted = config();
  wanted.name = "mine";
  touch(folder_ / "mine" / "metrics.jsonl");
  EXPECT_EQ(name_run(wanted, std::nullopt).name, "mine");
  touch(folder_ / "mine" / "checkpoints" / "step-000010" / "manifest.json");
  EXPECT_THROW(name_run(wanted, std::nullopt), base::UserError);
  wanted.checkpoint.resume = "auto";
  EXPECT_EQ(name_run(wanted, std::nullopt).name, "mine");
  wanted.name.clear();
  wanted.checkpoint.resume.clear();
  touch(folder_ / "nano-29500" / "checkpoints" / "step-000010" / "manifest.json");
  EXPECT_EQ(name_run(wanted, "29500").name, "nano-29500-2");
}

TEST_F(AppTest, CheckpointsElsewhereAreNotWrittenOverEither) {
  config::RunConfig wanted = config();
  wanted.name = "mine";
  wanted.trainer.checkpoint_dir = folder_ / "elsewhere";
  EXPECT_EQ(name_run(wanted, std::nullopt).name, "mine");
  touch(folder_ / "elsewhere" / "step-000010" / "manifest.json");
  EXPECT_THROW(name_run(wanted, std::nullopt), base::UserError);
  wanted.checkpoint.resume = "auto";
  EXPECT_EQ(name_run(wanted, std::nullopt).name, "mine");
  wanted.name.clear();
  touch(folder_ / "mine" / "run_id", "1");
  touch(folder_ / "elsewhere" / "owner.json", nlohmann::json{{"run", (folder_ / "mine").string()}, {"id", "1"}}.dump());
  EXPECT_EQ(name_run(wanted, std::nullopt).name, "mine") << "the run that the folder belongs to";
}

TEST_F(AppTest, ResumeAutoFindsTheNewestRunOfTheModel) {
  config::RunConfig wanted = config();
  wanted.checkpoint.resume = "auto";
  touch(folder_ / "nano-1" / "checkpoints" / "step-000010" / "manifest.json");
  touch(folder_ / "nano-2" / "checkpoints" / "step-000010" / "manifest.json");
  touch(folder_ / "nano-3" / "metrics.jsonl");
  touch(folder_ / "small-4" / "checkpoints" / "step-000010" / "manifest.json");
  fs::last_write_time(folder_ / "nano-1" / "checkpoints", fs::file_time_type::clock::now() + std::chrono::hours(1));
  EXPECT_EQ(name_run(wanted, std::nullopt).name, "nano-1");
}

TEST(Naming, ResumeCommand) {
  const auto command = [](std::vector<std::string> args) { return resume_command("lockstep", args, "nano-1"); };
  EXPECT_EQ(command({"-f", "a.yaml"}), "lockstep train -f a.yaml --name nano-1 --resume auto");
  EXPECT_EQ(command({"-f", "a.yaml", "--name", "x"}), "lockstep train -f a.yaml --name x --resume auto");
  EXPECT_EQ(command({"--name=x", "--resume", "old"}), "lockstep train --name=x --resume auto");
  EXPECT_EQ(command({"--resume=old", "monitor.sample_prompt=It's a day"}),
            "lockstep train 'monitor.sample_prompt=It'\\''s a day' --name nano-1 --resume auto");
  EXPECT_EQ(resume_command("/my programs/lockstep", std::vector<std::string>{}, "x"),
            "'/my programs/lockstep' train --name x --resume auto");
  EXPECT_EQ(resume_command("lockstep", std::vector<std::string>{"--resume=a b/step-000002", "--lr", "1"}, "x", "a b/step-000002"),
            "lockstep train --lr 1 --name x --resume 'a b/step-000002'");
}

TEST(Plan, SaysBatchAndLearningRate) {
  config::RunConfig config;
  config.model.name = "nano";
  config.data.seq_len = 128;
  config.trainer.learning_rate = 3e-4;
  config.trainer.batch_size = 8;
  config.trainer.gradient_accumulation = 2;
  config.trainer.max_steps = 100;
  config.trainer.lr_scaling = config::LrScaling::linear;
  RunPlan plan{.devices = {{"cpu", "CPU"}, {"cpu", "CPU"}},
               .world_size = 2,
               .threads = 1,
               .backend = config::Backend::gloo,
               .batch = config::plan_batch(config, 2),
               .parameters = 9'800'000,
               .folder = "runs/x",
               .launcher = "",
               .notes = {"a note"}};
  const std::string text = to_text(plan, config);
  for (const char* part : {"2 x CPU", "gloo", "9.8M parameters, f32, random weights", "20000 built-in stories",
                           "32 samples per step = batch 8 x accumulation 2 x 2 ranks", "4096 per step (128 per sample)",
                           "0.0006 = 0.0003 x 2 (trainer.lr_scaling linear with 2 ranks)", "runs/x", "note: a note"}) {
    EXPECT_NE(text.find(part), std::string::npos) << part << " is not in\n" << text;
  }
  plan.devices.clear();
  for (int i = 0; i < 8; ++i) plan.devices.push_back({"cuda:0", "NVIDIA H200", i});
  EXPECT_NE(to_text(plan, config).find("8 x NVIDIA H200 (GPUs 0-7)"), std::string::npos);
  const auto json = nlohmann::json::parse(to_json(plan, config));
  EXPECT_EQ(json["event"], "plan");
  EXPECT_EQ(json["global_batch_size"], 32);
  EXPECT_EQ(json["tokens_per_step"], 4096);
  EXPECT_EQ(json["learning_rate_factor"], 2);
}

TEST(Plan, SaysWhatIsCutBetweenRanks) {
  config::RunConfig config;
  config.model = config::with_defaults({});
  RunPlan plan{.devices = {{"cpu", "CPU"}}, .world_size = 8, .batch = config::plan_batch(config, 8), .folder = "runs/x", .launcher = ""};
  const auto said = [&](config::ShardKind kind, std::int64_t groups, bool adapters) {
    config.parallel.shard = kind;
    config.parallel.replicate = groups;
    config.lora.enabled = adapters;
    const std::string text = to_text(plan, config);
    const std::size_t at = text.find("  shards         ");
    return at == text.npos ? "" : text.substr(at + 17, text.find('\n', at) - at - 17);
  };
  using config::ShardKind;
  EXPECT_EQ(said(ShardKind::none, 1, false), "");
  EXPECT_EQ(said(ShardKind::optimizer, 1, false), "optimizer: states over 8 ranks");
  EXPECT_EQ(said(ShardKind::gradients, 1, false), "gradients: gradients and states over 8 ranks");
  EXPECT_EQ(said(ShardKind::full, 2, false), "full: weights, gradients and states over 4 ranks, in each of 2 replicas");
  const auto json = [&] { return nlohmann::json::parse(to_json(plan, config))["shards"]; };
  EXPECT_EQ(json(), nlohmann::json::parse(R"({"placement":"full","cut":["weights","gradients","states"],"ranks":4,"replicas":2})"));
  EXPECT_EQ(said(ShardKind::full, 1, true),
            "full: frozen weights over 8 ranks; adapters are whole, their gradients summed as replicas' are");
  EXPECT_EQ(said(ShardKind::optimizer, 1, true), "optimizer: nothing is cut; adapters are whole, their gradients summed as replicas' are");
  EXPECT_EQ(json(), nlohmann::json::parse(R"({"placement":"optimizer","cut":[],"ranks":1,"replicas":8})"));
  EXPECT_EQ(show::in_one_line({.gathers = 3, .gathered_bytes = 1 << 20}),
            "3 (1.0 MiB) gathers, as each rank receives them, and sums of the adapters' gradients");
}

TEST(Display, StepLine) {
  const auto json = nlohmann::json::parse(R"({"step":7,"loss":3.25,"learning_rate":3e-4,"tokens_per_second":12345,"step_seconds":0.5})");
  EXPECT_EQ(step_line(json, 120), "step   7/120  loss   3.2500  lr 3.00e-04    12.3k tok/s    0.500 s/step  ETA 56.5 s");
  EXPECT_NE(step_line(nlohmann::json::parse(R"({"step":7,"loss":null})"), 0).find("loss not finite"), std::string::npos);
}

TEST(WorkerEnvironment, SaysEverythingTheWorkerNeeds) {
  launch::Job job;
  job.id = "1-2";
  job.world_size = 4;
  job.local_world_size = 2;
  job.master_addr = "10.0.0.1";
  job.master_port = 29501;
  job.threads = 3;
  job.library_path = "/torch/lib";
  job.visible_devices = "2,3";
  job.shared_gpus = true;
  job.run_key = "key";
  job.restart = 2;
  job.store_socket = 7;  // rank 0's
  job.bind_host = "127.0.0.1";
  job.environment = {{"PATH", "/bin"}, {"TORCHELASTIC_USE_AGENT_STORE", "True"}, {"RANK", "9"}, {"LOCKSTEP_SECRET", "not for workers"}};
  const auto environment = launch::worker_environment(job, {3, 1, "cuda:1"});
  const std::map<std::string, std::string> expected = {{"PATH", "/bin"},
                                                       {"RANK", "3"},
                                                       {"LOCAL_RANK", "1"},
                                                       {"WORLD_SIZE", "4"},
                                                       {"LOCAL_WORLD_SIZE", "2"},
                                                       {"MASTER_ADDR", "10.0.0.1"},
                                                       {"MASTER_PORT", "29501"},
                                                       {"OMP_NUM_THREADS", "3"},
                                                       {"LOCKSTEP_DEVICE", "cuda:1"},
                                                       {"LOCKSTEP_RUN_KEY", "key"},
                                                       {"LOCKSTEP_RESTART", "2"},
                                                       {"LOCKSTEP_BIND_HOST", "127.0.0.1"},
                                                       {"LD_LIBRARY_PATH", "/torch/lib"},
                                                       {"CUDA_VISIBLE_DEVICES", "2,3"},
                                                       {"CUDA_DEVICE_ORDER", "PCI_BUS_ID"},
                                                       {"NCCL_HOSTID", "lockstep-1-2-3"}};
  for (const auto& [name, value] : expected) EXPECT_EQ(launch::lookup(environment, name).value_or("(not set)"), value) << name;
  EXPECT_FALSE(launch::lookup(environment, "TORCHELASTIC_USE_AGENT_STORE"));
  EXPECT_TRUE(launch::lookup(environment, "LOCKSTEP_PAGE")->ends_with("1-2/3.page"));
  job.foreign = true;
  EXPECT_TRUE(launch::lookup(launch::worker_environment(job, {3, 1, "cuda:1"}), "TORCHELASTIC_USE_AGENT_STORE"));
}

TEST_F(AppTest, LibTorchIsFoundAndItsVersionChecked) {
  const auto make = [&](const fs::path& site, const std::string& version) {
    touch(site / "torch" / "lib" / "libtorch_cpu.so");
    touch(site / "torch" / "version.py", "from typing import Optional\n__version__ = '" + version + "'\n");
    fs::create_directories(site / "nvidia" / "nccl" / "lib");
    fs::create_directories(site / "nvidia" / "cu13" / "lib");
    fs::create_directories(site / "nvidia" / "none");
  };
  const fs::path site = folder_ / "checkout" / ".deps" / "lib" / "python3.11" / "site-packages";
  make(site, "2.11.0+cu130");
  const fs::path program = folder_ / "checkout" / "build" / "bin" / "lockstep";
  const auto found = launch::find_libtorch({}, program);
  EXPECT_EQ(found.root, site / "torch");
  EXPECT_EQ(found.found_by, ".deps");
  EXPECT_EQ(found.version, "2.11.0+cu130");
  EXPECT_EQ(
      launch::library_path(found, {{"LD_LIBRARY_PATH", "/mine"}}),
      (site / "torch/lib").string() + ":" + (site / "nvidia/cu13/lib").string() + ":" + (site / "nvidia/nccl/lib").string() + ":/mine");

  make(folder_ / "other", "2.11.0");
  for (const fs::path& spelling : {folder_ / "other", folder_ / "other" / "torch"}) {
    EXPECT_EQ(launch::find_libtorch({{"LOCKSTEP_LIBTORCH", spelling}}, program).root, folder_ / "other" / "torch");
  }
  EXPECT_EQ(launch::find_libtorch({{"LOCKSTEP_LIBTORCH", folder_ / "checkout" / ".deps"}}, program).root, site / "torch");

  // A wheel lies beside torch, in a checkout's environment or elsewhere; a tarball beside or around the folder that is offered for C++.
  const fs::path wheel = folder_ / "checkout" / "env" / "site-packages";
  make(wheel, "2.11.0");
  EXPECT_EQ(launch::find_libtorch({}, wheel / "lockstep" / "bin" / "lockstep").root, wheel / "torch");
  touch(folder_ / "unpacked" / "libtorch" / "lib" / "libtorch_cpu.so");
  touch(folder_ / "unpacked" / "libtorch" / "build-version", "2.11.0+cpu\n");
  for (const fs::path& prefix : {folder_ / "unpacked", folder_ / "unpacked" / "lockstep-0.1.0"})
    EXPECT_EQ(launch::find_libtorch({}, prefix / "bin" / "lockstep").root, folder_ / "unpacked" / "libtorch") << prefix;

  make(folder_ / "old", "2.10.1+cpu");
  for (const auto& [where, says] : std::map<std::string, std::string>{{folder_ / "old", "is version 2.10.1+cpu"},
                                                                      {folder_ / "empty", "holds no lib/libtorch_cpu.so"}}) {
    try {
      launch::find_libtorch({{"LOCKSTEP_LIBTORCH", where}}, program);
      FAIL() << where;
    } catch (const base::UserError& error) {
      EXPECT_EQ(error.code(), base::ExitCode::machine);
      EXPECT_NE(std::string(error.what()).find(says), std::string::npos) << error.what();
    }
  }
}

TEST_F(AppTest, TheWorkerLiesBesideTheProgram) {
  touch(folder_ / "bin" / "lockstep-worker");
  EXPECT_THROW(launch::find_worker({}, folder_ / "bin" / "lockstep"), base::UserError);  // cannot be run
  fs::permissions(folder_ / "bin" / "lockstep-worker", fs::perms::owner_all);
  EXPECT_EQ(launch::find_worker({}, folder_ / "bin" / "lockstep"), folder_ / "bin" / "lockstep-worker");
  EXPECT_EQ(launch::find_worker({{"LOCKSTEP_WORKER", "/bin/sh"}}, folder_ / "bin" / "lockstep"), "/bin/sh");
  EXPECT_THROW(launch::find_worker({{"LOCKSTEP_WORKER", "/nowhere"}}, folder_ / "bin" / "lockstep"), base::UserError);
}

}  // namespace
}  // namespace lockstep::app
