// Every setting of a run, with its default. The table in options.cpp binds each field to its name, range, unit, sentence and aliases.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace lockstep::config {

enum class DType { f32, f16, bf16 };
enum class Backend { automatic, single, cpu, gloo, nccl };
enum class DeviceKind { automatic, cuda, cpu };
enum class LrScaling { none, linear, sqrt };
enum class Recompute { automatic, none, norms, blocks };
enum class LrSchedule { constant, linear, cosine, wsd };
enum class DataKind { automatic, bin, text, random, stories };
enum class TokenType { u32, u16 };
enum class ReduceDType { automatic, f32, gradient };

struct ModelConfig {
  std::string name = "custom";
  std::int64_t hidden_size = 256;
  std::int64_t num_layers = 8;
  std::int64_t num_heads = 8;
  std::int64_t kv_heads = 0;           // 0: as many as num_heads
  std::int64_t head_dim = 0;           // 0: hidden_size / num_heads
  std::int64_t intermediate_size = 0;  // 0: 8/3 of hidden_size, rounded up to a multiple of 64
  std::int64_t vocab_size = 1024;
  std::int64_t max_seq_len = 256;
  double rope_theta = 10000.0;
  DType dtype = DType::f32;
  bool tie_embeddings = true;
  bool qkv_bias = false;
  bool qk_norm = false;
  double norm_eps = 1e-5;
  double initializer_range = 0.02;

  bool operator==(const ModelConfig&) const = default;
};

struct DistributedConfig {
  bool enabled = true;
  Backend backend = Backend::automatic;
  std::vector<std::int64_t> gpu_ids;  // empty: all that are visible

  bool operator==(const DistributedConfig&) const = default;
};

struct TrainerConfig {
  double learning_rate = 3e-4;
  std::int64_t batch_size = 0;             // samples a device takes at once; 0: follows from the other two
  std::int64_t gradient_accumulation = 0;  // micro-batches a step; 0: follows from the other two
  std::int64_t global_batch_size = 0;      // samples a step, all devices together; 0: follows from the other two
  std::int64_t max_steps = 0;              // 0: until num_epochs
  double num_epochs = 1;
  std::string checkpoint_dir;  // empty: <run folder>/checkpoints
  std::int64_t log_interval = 10;
  std::int64_t save_interval = 500;  // 0: only at the end
  std::int64_t max_checkpoints = 3;  // 0: keep all
  std::int64_t eval_interval = 0;    // 0: only at the end
  std::int64_t eval_batches = 0;     // 0: the whole validation split
  DeviceKind target_device = DeviceKind::automatic;
  DistributedConfig distributed;
  LrScaling lr_scaling = LrScaling::none;
  LrSchedule lr_schedule = LrSchedule::cosine;
  std::int64_t warmup_steps = 0;
  double min_lr_ratio = 0.1;
  double decay_fraction = 0.2;  // wsd: the share of all steps that decays
  double weight_decay = 0.1;
  double beta1 = 0.9;
  double beta2 = 0.95;
  double epsilon = 1e-8;
  double max_grad_norm = 1.0;  // 0: no clipping
  std::int64_t seed = 1234;
  std::int64_t max_skipped_steps = 20;  // this many non-finite steps in a row end the run
  double initial_loss_scale = 65536;    // f16 only
  std::int64_t loss_scale_window = 2000;
  bool deterministic = false;
  Recompute recompute = Recompute::automatic;
  // Parsed for files that carry them; used by methods that later versions build.
  double load_balance_alpha = 0;
  std::int64_t group_size = 0;
  double beta_kl = 0;

  bool operator==(const TrainerConfig&) const = default;
};

struct DataConfig {
  std::string path;  // empty: the built-in stories
  DataKind kind = DataKind::automatic;
  TokenType token_type = TokenType::u32;
  std::int64_t seq_len = 0;  // 0: model.max_seq_len
  std::string validation_path;
  double validation_fraction = 0.05;
  std::int64_t prefetch = 2;  // micro-batches made ready ahead
  std::int64_t workers = 1;
  bool pin_memory = true;
  bool shuffle = true;
  bool distributed_loading = true;  // each rank reads its own samples; false: rank 0 reads and hands out
  std::int64_t stories = 20000;     // size of the built-in corpus, in stories
  std::int64_t random_tokens = 1 << 20;
  bool allow_new_data = false;  // resume although the data is not what the checkpoint was trained on

  bool operator==(const DataConfig&) const = default;
};

struct ParallelConfig {
  std::int64_t ranks = 0;  // on this machine; 0: one a device
  double bucket_cap_mb = 25;
  bool find_unused_parameters = false;
  bool broadcast_buffers = true;
  ReduceDType reduce_dtype = ReduceDType::automatic;
  std::int64_t check_divergence = 0;  // steps between checks; 0: only at the start
  double timeout_s = 600;             // deadline of one collective
  std::int64_t max_restarts = 0;
  std::int64_t threads = 0;  // OpenMP threads a rank; 0: cores / ranks
  std::int64_t nnodes = 1;
  std::int64_t node_rank = 0;
  std::string master_addr = "127.0.0.1";
  std::int64_t master_port = 0;  // 0: 29500, or the next free one

  bool operator==(const ParallelConfig&) const = default;
};

struct CheckpointConfig {
  std::string resume;        // empty: start anew; "auto": newest whole one of this run; or a path
  bool asynchronous = true;  // train on while the copy in host memory is written
  bool save_at_end = true;

  bool operator==(const CheckpointConfig&) const = default;
};

struct MonitorConfig {
  double stall_seconds = 30;
  double stall_abort_seconds = 120;
  bool headless = false;
  std::int64_t sample_interval = 0;  // 0: only at the end
  std::int64_t sample_tokens = 80;
  std::string sample_prompt = "Once upon a time";
  double sample_temperature = 0.7;
  bool tensorboard = false;
  std::int64_t profile_steps = 0;  // traced after the first five

  bool operator==(const MonitorConfig&) const = default;
};

// How this command starts the run; says nothing about what is trained.
struct LaunchConfig {
  std::int64_t num_gpus = 0;  // 0: all that are visible
  bool spawn = false;         // start the ranks from here although another launcher's variables are set
  bool dry_run = false;       // resolve, plan, print, start nothing

  bool operator==(const LaunchConfig&) const = default;
};

struct RunConfig {
  std::string name;             // empty: <model name>-<date>-<time>
  std::string output = "runs";  // folder that run folders are made in
  ModelConfig model;
  TrainerConfig trainer;
  DataConfig data;
  ParallelConfig parallel;
  CheckpointConfig checkpoint;
  MonitorConfig monitor;
  LaunchConfig launch;

  bool operator==(const RunConfig&) const = default;
};

// What follows from the settings once the number of ranks is known.
struct BatchPlan {
  std::int64_t batch_size;             // samples a device takes at once
  std::int64_t gradient_accumulation;  // micro-batches a step
  std::int64_t global_batch_size;      // = batch_size * gradient_accumulation * ranks
  double learning_rate;                // after trainer.lr_scaling
};

}  // namespace lockstep::config
