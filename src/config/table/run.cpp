// The options of the sections `parallel`, `checkpoint`, `monitor`, `launch`, and of the top level.
#include "config/table/option.h"

namespace lockstep::config {

using R = RunConfig;

std::vector<Option> top_level_options() {
  return {
      option<&R::name>({
          .key = "name",
          .says = "Name of the run and of its folder.",
          .zero = "<model.name>-<date>-<time>",
          .aliases = {{"run_name"}},
          .flags = {"--name"},
          .example = "first",
      }),
      option<&R::output>({
          .key = "output",
          .says = "Folder that run folders are made in.",
          .aliases = {{"output_dir"}, {"workspace_dir"}},
          .flags = {"--output", "-o"},
      }),
  };
}

namespace {

// What ranks hold and exchange.
std::vector<Option> spread_options() {
  using P = ParallelConfig;
  return {
      option<&R::parallel, &P::bucket_cap_mb>({
          .key = "parallel.bucket_cap_mb",
          .says = "Gradients are reduced in buckets of about this size.",
          .unit = "MiB",
          .range = above(0, 1 << 20),
          .aliases = {{"ddp_bucket_cap_mb"}},
      }),
      option<&R::parallel, &P::find_unused_parameters>({
          .key = "parallel.find_unused_parameters",
          .says = "Allow parameters that get no gradient in a step; without it they are an error that names them.",
          .aliases = {{"ddp_find_unused_parameters"}},
      }),
      option<&R::parallel, &P::shard>({
          .key = "parallel.shard",
          .says = "What ranks hold a share of instead of all: none; optimizer states (ZeRO-1); gradients too (ZeRO-2); weights too (full, "
                  "ZeRO-3, FSDP).",
          .aliases = {{"zero_stage"}, {"fsdp"}},
          .flags = {"--shard"},
          .example = "full",
      }),
      option<&R::parallel, &P::replicate>({
          .key = "parallel.replicate",
          .says = "Groups of ranks that each hold everything between them: shards lie within a group, and groups train as replicas.",
          .unit = "groups",
          .range = between(1, 65536),
          .aliases = {{"data_parallel_replicate_degree"}, {"dp_replicate_size"}},
          .flags = {"--replicate"},
          .example = "2",
      }),
      option<&R::parallel, &P::reduce_dtype>({
          .key = "parallel.reduce_dtype",
          .says = "Number format gradients are summed in across ranks; auto is the weights', gradient what each rank sums its own in.",
      }),
  };
}

// Who they are and where they meet.
std::vector<Option> rank_options() {
  using P = ParallelConfig;
  return {
      option<&R::parallel, &P::ranks>({
          .key = "parallel.ranks",
          .says = "Worker processes on this machine.",
          .unit = "ranks",
          .range = between(0, 4096),
          .zero = "one a GPU; 2 where there is none",
          .zero_words = {"auto", "gpu"},
          .aliases = {{"nproc_per_node"}, {"num_processes"}},
          .flags = {"--ranks", "--nproc-per-node"},
          .example = "2",
      }),
      option<&R::parallel, &P::check_divergence>({
          .key = "parallel.check_divergence",
          .says = "Steps between checks that all ranks hold the same weights; every save is one too.",
          .unit = "steps",
          .range = at_least(0),
          .zero = "only at the start",
      }),
      option<&R::parallel, &P::timeout_s>({
          .key = "parallel.timeout_s",
          .says = "Deadline of one collective operation.",
          .unit = "seconds",
          .range = above(0, 1e7),
          .aliases = {{"ddp_timeout"}},
      }),
      option<&R::parallel, &P::max_restarts>({
          .key = "parallel.max_restarts",
          .says = "Times a failed run is started again from its newest whole checkpoint.",
          .range = between(0, 1000000),
          .flags = {"--max-restarts"},
      }),
      option<&R::parallel, &P::threads>({
          .key = "parallel.threads",
          .says = "OpenMP threads of one rank.",
          .unit = "threads",
          .range = between(0, 4096),
          .zero = "cores / ranks",
          .zero_words = {"auto"},
          .flags = {"--threads"},
          .example = "4",
      }),
      option<&R::parallel, &P::nnodes>({
          .key = "parallel.nnodes",
          .says = "Machines of the run.",
          .unit = "machines",
          .range = between(1, 65536),
          .aliases = {{"num_nodes"}, {"num_machines"}},
          .flags = {"--nnodes"},
      }),
      option<&R::parallel, &P::node_rank>({
          .key = "parallel.node_rank",
          .says = "Number of this machine among them, from 0.",
          .range = between(0, 65535),
          .aliases = {{"machine_rank"}},
          .flags = {"--node-rank"},
      }),
      option<&R::parallel, &P::master_addr>({
          .key = "parallel.master_addr",
          .says = "Name or address of machine 0.",
          .aliases = {{"main_process_ip"}},
          .flags = {"--master-addr"},
          .example = "10.0.0.1",
      }),
      option<&R::parallel, &P::master_port>({
          .key = "parallel.master_port",
          .says = "Port on machine 0 where ranks meet.",
          .range = between(0, 65535),
          .zero = "29500, or on one machine the next free one",
          .aliases = {{"main_process_port"}},
          .flags = {"--port", "--master-port"},
          .example = "29500",
      }),
  };
}

}  // namespace

std::vector<Option> parallel_options() {
  std::vector<Option> all = rank_options(), spread = spread_options();
  all.insert(all.end(), spread.begin(), spread.end());
  return all;
}

std::vector<Option> checkpoint_options() {
  using C = CheckpointConfig;
  return {
      option<&R::checkpoint, &C::resume>({
          .key = "checkpoint.resume",
          .says = "Checkpoint to go on from: its folder, a run folder, or auto for the newest whole one of this run.",
          .zero = "start anew",
          .aliases = {{"resume_from_checkpoint"}},
          .flags = {"--resume"},
          .example = "auto",
      }),
      option<&R::checkpoint, &C::asynchronous>({
          .key = "checkpoint.asynchronous",
          .says = "Train on while the copy in host memory is written to disk: a kill then loses two intervals at most, otherwise one.",
      }),
      option<&R::checkpoint, &C::wait_below_mb>({
          .key = "checkpoint.wait_below_mb",
          .says = "With asynchronous: checkpoints smaller than this are waited for all the same, as that takes no longer than a few steps.",
          .unit = "MB",
          .range = at_least(0),
          .zero = "none is",
      }),
      option<&R::checkpoint, &C::staging_mb>({
          .key = "checkpoint.staging_mb",
          .says =
              "Host memory that each rank may fill with the copy of what it saves. A rank that saves more copies it in turns, and training "
              "waits for the disk until the last turn.",
          .unit = "MB",
          .range = between(0, 1e9),
          .zero = "half of what the machine has free, divided among its ranks",
      }),
      option<&R::checkpoint, &C::save_at_end>({
          .key = "checkpoint.save_at_end",
          .says = "Save a checkpoint after the last step.",
      }),
      option<&R::checkpoint, &CheckpointConfig::export_at_end>({
          .key = "checkpoint.export_at_end",
          .says =
              "When training ends, write the model or the adapter as a Hugging Face folder into the run folder (model.path or lora only).",
      }),
  };
}

std::vector<Option> monitor_options() {
  using M = MonitorConfig;
  return {
      option<&R::monitor, &M::stall_seconds>({
          .key = "monitor.stall_seconds",
          .says = "A rank that makes no progress in a step for so long is reported.",
          .unit = "seconds",
          .range = above(0, 1e7),
      }),
      option<&R::monitor, &M::stall_abort_seconds>({
          .key = "monitor.stall_abort_seconds",
          .says = "A stalled job is ended after so long.",
          .unit = "seconds",
          .range = above(0, 1e7),
      }),
      option<&R::monitor, &M::headless>({
          .key = "monitor.headless",
          .says = "Print JSON lines only.",
          .flags = {"--headless"},
      }),
      option<&R::monitor, &M::sample_interval>({
          .key = "monitor.sample_interval",
          .says = "Steps between text samples from the model.",
          .unit = "steps",
          .range = at_least(0),
          .zero = "only at the end",
      }),
      option<&R::monitor, &M::sample_tokens>({
          .key = "monitor.sample_tokens",
          .says = "Length of a sample.",
          .unit = "tokens",
          .range = between(0, 1 << 20),
          .zero = "no samples",
      }),
      option<&R::monitor, &M::sample_prompt>({
          .key = "monitor.sample_prompt",
          .says = "Text a sample starts with.",
      }),
      option<&R::monitor, &MonitorConfig::sample_prompts>({
          .key = "monitor.sample_prompts",
          .says = "Several prompts instead; ranks share them.",
          .zero = "sample_prompt",
      }),
      option<&R::monitor, &M::sample_temperature>({
          .key = "monitor.sample_temperature",
          .says = "Temperature of sampling.",
          .range = between(0, 100),
          .zero = "always the likeliest token",
      }),
      option<&R::monitor, &M::tensorboard>({
          .key = "monitor.tensorboard",
          .says = "Write TensorBoard files into the run folder as well.",
          .flags = {"--tensorboard"},
      }),
      option<&R::monitor, &M::wandb>({
          .key = "monitor.wandb",
          .says = "Write files for Weights & Biases into the run folder as well; `wandb sync` uploads them.",
          .aliases = {{"use_wandb"}},
          .flags = {"--wandb"},
      }),
      option<&R::monitor, &M::wandb_project>({
          .key = "monitor.wandb_project",
          .says = "The project that Weights & Biases shows the run in, under the run's name.",
          .flags = {"--wandb-project"},
      }),
      option<&R::monitor, &M::prometheus_port>({
          .key = "monitor.prometheus_port",
          .says = "Serve /metrics for Prometheus at this port of 127.0.0.1 while the run lasts; each machine its own.",
          .range = between(0, 65535),
          .zero = "not served",
          .flags = {"--prometheus-port"},
          .example = "9400",
      }),
      option<&R::monitor, &M::profile_steps>({
          .key = "monitor.profile_steps",
          .says = "Steps to trace, after the first five: a Perfetto trace a rank and a table of where the time went.",
          .unit = "steps",
          .range = between(0, 1000),
          .zero = "no trace",
          .flags = {"--profile"},
      }),
  };
}

std::vector<Option> launch_options() {
  using L = LaunchConfig;
  return {
      option<&R::launch, &L::num_gpus>({
          .key = "launch.num_gpus",
          .says = "Number of GPUs to use, the first ones.",
          .unit = "GPUs",
          .range = between(0, 4096),
          .zero = "all that are visible",
          .zero_words = {"all", "auto"},
          .flags = {"--num-gpus"},
          .example = "2",
      }),
      option<&R::launch, &L::spawn>({
          .key = "launch.spawn",
          .says = "Start the ranks from here although the variables of another launcher are set.",
          .flags = {"--spawn"},
      }),
      option<&R::launch, &L::dry_run>({
          .key = "launch.dry_run",
          .says = "Resolve, plan and print; start nothing.",
          .flags = {"--dry-run"},
      }),
  };
}

}  // namespace lockstep::config
