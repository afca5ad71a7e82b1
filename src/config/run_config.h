// Every setting of a run, with its default. The table in options.cpp binds each field to its name, range, unit, sentence and aliases.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace lockstep::config {

enum class DType { f32, f16, bf16 };
enum class Family { automatic, llama, qwen2, qwen3, mistral, olmo2 };
enum class Backend { automatic, single, cpu, gloo, nccl };
enum class DeviceKind { automatic, cuda, cpu };
enum class LrScaling { none, linear, sqrt };
enum class Recompute { automatic, none, norms, qkv, blocks };
enum class LrSchedule { constant, linear, cosine, wsd };
enum class DataKind { automatic, bin, text, random, stories, records };
enum class RecordFormat { automatic, messages, sharegpt, alpaca, prompt_completion, text };
enum class TrainOn { automatic, responses, all, last, whole_chats };
enum class PromptStyle { automatic, alpaca };
enum class TooLong { cut, cut_start, skip, error };
enum class BadRecord { error, skip };
enum class Optimizer { adamw, adamw_8bit, sgd, lion, adafactor, muon };
enum class StateDType { f32, bf16 };
enum class RopeScaling { none, linear, llama3 };
enum class TokenType { u32, u16 };
enum class ShardKind { none, optimizer, gradients, full };
enum class ReduceDType { automatic, f32, gradient };

// Stretches rotary positions beyond the length a model was first trained for.
struct RopeScalingConfig {
  RopeScaling type = RopeScaling::none;
  double factor = 1;
  double low_freq_factor = 1;
  double high_freq_factor = 4;
  std::int64_t original_max_seq_len = 8192;

  bool operator==(const RopeScalingConfig&) const = default;
};

struct ModelConfig {
  std::string name = "custom";
  std::string path;  // a Hugging Face model folder to start from; empty: random weights
  Family family = Family::automatic;
  std::int64_t hidden_size = 256;
  std::int64_t num_layers = 8;
  std::int64_t num_heads = 8;
  std::int64_t kv_heads = 0;           // 0: as many as num_heads
  std::int64_t head_dim = 0;           // 0: hidden_size / num_heads
  std::int64_t intermediate_size = 0;  // 0: 8/3 of hidden_size, rounded up to a multiple of 64
  std::int64_t vocab_size = 1024;
  std::int64_t max_seq_len = 256;
  double rope_theta = 10000.0;
  RopeScalingConfig rope_scaling;
  std::int64_t sliding_window = 0;  // 0: every earlier token is seen
  DType dtype = DType::f32;
  bool tie_embeddings = true;
  bool qkv_bias = false;
  bool qk_norm = false;
  double norm_eps = 1e-5;
  double initializer_range = 0.02;
  bool load_in_4bit = false;  // frozen matrices as NF4
  bool load_in_8bit = false;  // frozen matrices as blockwise int8
  bool double_quant = true;   // NF4: the scales are quantized too

  bool operator==(const ModelConfig&) const = default;
};

// Low-rank adapters beside frozen matrices, in PEFT's terms.
struct LoraConfig {
  bool enabled = false;
  std::int64_t rank = 16;
  double alpha = 0;  // 0: twice the rank
  double dropout = 0;
  std::vector<std::string> target_modules = {"all-linear"};
  bool rslora = false;                            // scale alpha / sqrt(rank) instead of alpha / rank
  bool dora = false;                              // directions by LoRA, magnitudes trained apart
  std::vector<std::int64_t> layers_to_transform;  // empty: all
  std::vector<std::string> modules_to_save;       // trained whole: embed_tokens, lm_head
  std::vector<std::string> exclude_modules;       // never adapted, whatever target_modules says
  std::vector<std::string> rank_pattern;          // "NAME=RANK": matrices whose rank differs
  std::vector<std::string> alpha_pattern;         // "NAME=ALPHA"
  std::vector<std::string> adapters;              // PEFT folders: all but the last are folded in, the last is trained on
  double b_lr_ratio = 1;                          // LoRA+: learning rate of B over that of A

  bool operator==(const LoraConfig&) const = default;
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
  double warmup_ratio = 0;  // share of all steps; beside warmup_steps the shorter of the two
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
  std::int64_t recompute_every = 1;  // recompute blocks: every n-th block
  bool offload_checkpoints = false;  // recompute blocks: their inputs wait in host memory
  Optimizer optimizer = Optimizer::adamw;
  StateDType optimizer_states = StateDType::f32;
  double momentum = 0.9;  // sgd
  double muon_momentum = 0.95;
  double embedding_learning_rate = 0;  // 0: as everything else
  bool auto_find_batch_size = false;
  bool keep_best = true;    // the checkpoint with the lowest validation loss is kept beside the newest
  bool cuda_graphs = true;  // where shapes are fixed
  bool fp8 = false;         // matmuls of blocks in e4m3 and e5m2

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
  RecordFormat format = RecordFormat::automatic;
  TrainOn train_on = TrainOn::automatic;
  bool packing = false;
  TooLong too_long = TooLong::cut;
  BadRecord bad_records = BadRecord::error;
  std::string tokenizer;                                                   // folder or tokenizer.json; empty: model.path
  std::string chat_template;                                               // file, or the template itself; empty: the tokenizer's
  PromptStyle prompt_style = PromptStyle::automatic;                       // how instructions of alpaca records are put
  std::string system_prompt;                                               // for conversations that have none
  std::string messages_field, prompt_field, completion_field, text_field;  // empty: the usual names
  std::string system_field, input_field, history_field, tools_field;       // empty: the usual names; "none": not read
  std::string role_field, content_field;                                   // of a message; empty: the usual names
  std::vector<std::string> roles;                                          // "user=customer": ours and theirs; empty: the usual ones
  std::int64_t max_samples = 0;                                            // 0: all
  std::string cache_dir;                                                   // empty: LOCKSTEP_CACHE or ~/.cache/lockstep

  bool operator==(const DataConfig&) const = default;
};

struct ParallelConfig {
  std::int64_t ranks = 0;  // on this machine; 0: one a device
  double bucket_cap_mb = 25;
  bool find_unused_parameters = false;
  ShardKind shard = ShardKind::none;  // what ranks hold a share of instead of all
  std::int64_t replicate = 1;         // groups of ranks that each hold everything between them
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
  std::string resume;                // empty: start anew; "auto": newest whole one of this run; or a path
  bool asynchronous = true;          // train on while the copy in host memory is written
  std::int64_t wait_below_mb = 200;  // smaller checkpoints are waited for all the same
  std::int64_t staging_mb = 0;       // host memory of a rank for the copy; 0: half of what the host has free, between its ranks
  bool save_at_end = true;
  bool export_at_end = true;  // model or adapter as a Hugging Face folder, where training started from one

  bool operator==(const CheckpointConfig&) const = default;
};

struct MonitorConfig {
  double stall_seconds = 30;
  double stall_abort_seconds = 120;
  bool headless = false;
  std::int64_t sample_interval = 0;  // 0: only at the end
  std::int64_t sample_tokens = 80;
  std::string sample_prompt = "Once upon a time";
  std::vector<std::string> sample_prompts;  // empty: sample_prompt
  double sample_temperature = 0.7;
  bool tensorboard = false;
  bool wandb = false;
  std::string wandb_project = "lockstep";
  std::int64_t prometheus_port = 0;  // 0: none
  std::int64_t profile_steps = 0;    // traced after the first five

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
  LoraConfig lora;
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
