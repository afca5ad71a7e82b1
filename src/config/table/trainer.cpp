// The options of the section `trainer`: how the model is trained.
#include "config/table/option.h"

namespace lockstep::config {
namespace {

using R = RunConfig;
using T = TrainerConfig;

std::vector<Option> batch_and_length() {
  return {
      option<&R::trainer, &T::learning_rate>({
          .key = "trainer.learning_rate",
          .says = "Highest learning rate, before trainer.lr_scaling.",
          .range = above(0, 1000),
          .aliases = {{"lr"}},
          .flags = {"--learning-rate", "--lr"},
          .example = "3e-4",
      }),
      option<&R::trainer, &T::batch_size>({
          .key = "trainer.batch_size",
          .says = "Samples one device takes at once.",
          .unit = "samples",
          .range = between(0, 1 << 20),
          .zero = "what the other two give, or 8",
          .zero_words = {"auto"},
          .aliases = {{"per_device_train_batch_size"}, {"micro_batch_size"}, {"train_micro_batch_size_per_gpu"}},
          .flags = {"--batch-size"},
          .example = "8",
      }),
      option<&R::trainer, &T::gradient_accumulation>({
          .key = "trainer.gradient_accumulation",
          .says = "Micro-batches whose gradients are summed into one step.",
          .unit = "micro-batches",
          .range = between(0, 1 << 20),
          .zero = "what the other two give, or 1",
          .zero_words = {"auto"},
          .aliases = {{"gradient_accumulation_steps"}, {"accumulate_grad_batches"}},
          .flags = {"--grad-accum"},
          .example = "4",
      }),
      option<&R::trainer, &T::global_batch_size>({
          .key = "trainer.global_batch_size",
          .says = "Samples of one step, all devices and micro-batches together.",
          .unit = "samples",
          .range = between(0, 1ll << 40),
          .zero = "batch_size x gradient_accumulation x ranks",
          .zero_words = {"auto"},
          .aliases = {{"effective_batch_size"}},
          .flags = {"--global-batch-size"},
          .example = "256",
      }),
      option<&R::trainer, &T::max_steps>({
          .key = "trainer.max_steps",
          .says = "Steps to train for.",
          .unit = "steps",
          .range = at_least(0),
          .zero = "until num_epochs",
          .aliases = {{"max_iters"}, {"train_iters"}},
          .flags = {"--max-steps"},
          .example = "1000",
      }),
      option<&R::trainer, &T::num_epochs>({
          .key = "trainer.num_epochs",
          .says = "Passes over the training data, when max_steps does not say.",
          .unit = "passes",
          .range = above(0, 1e6),
          .aliases = {{"num_train_epochs"}, {"epochs"}, {"max_epochs"}},
          .flags = {"--epochs"},
      }),
  };
}

std::vector<Option> rhythm() {
  return {
      option<&R::trainer, &T::recompute>({
          .key = "trainer.recompute",
          .says = "What backward recomputes instead of keeping it: norms and SwiGLU, these and q, k, v, or whole blocks; auto takes the "
                  "fastest mix that the device's memory holds.",
          .aliases = {{"gradient_checkpointing", "blocks"}, {"activation_checkpointing", "blocks"}},
          .flags = {"--recompute"},
      }),
      option<&R::trainer, &T::recompute_every>({
          .key = "trainer.recompute_every",
          .says = "With recompute = blocks: every n-th block is recomputed, of the others only norms and SwiGLU.",
          .unit = "blocks",
          .range = at_least(1),
      }),
      option<&R::trainer, &T::offload_checkpoints>({
          .key = "trainer.offload_checkpoints",
          .says = "Inputs of blocks that are recomputed wait in host memory instead of on the device.",
          .aliases = {{"activation_offloading"}},
          .flags = {"--offload-checkpoints"},
      }),
      option<&R::trainer, &T::optimizer>({
          .key = "trainer.optimizer",
          .says = "What turns gradients into updates; adamw_8bit holds its moments in 8 bits, muon serves matrices of blocks and AdamW the "
                  "rest.",
          .aliases = {{"optim"}},
          .flags = {"--optimizer"},
      }),
      option<&R::trainer, &T::optimizer_states>({
          .key = "trainer.optimizer_states",
          .says = "With f32, master weights and moments have 32 bits; with bf16, weights and moments have 16, updated with stochastic "
                  "rounding.",
          .flags = {"--optimizer-states"},
      }),
      option<&R::trainer, &T::momentum>({
          .key = "trainer.momentum",
          .says = "Momentum of sgd.",
          .range = from_below(0, 1),
      }),
      option<&R::trainer, &T::muon_momentum>({
          .key = "trainer.muon_momentum",
          .says = "Momentum of muon.",
          .range = from_below(0, 1),
      }),
      option<&R::trainer, &T::embedding_learning_rate>({
          .key = "trainer.embedding_learning_rate",
          .says = "Highest learning rate of the token embedding and the output head.",
          .range = at_least(0),
          .zero = "trainer.learning_rate",
          .aliases = {{"embedding_lr"}},
          .example = "5e-5",
      }),
      option<&R::trainer, &T::auto_find_batch_size>({
          .key = "trainer.auto_find_batch_size",
          .says = "Halve batch_size (and raise gradient_accumulation to match) until a step fits into memory.",
      }),
      option<&R::trainer, &T::keep_best>({
          .key = "trainer.keep_best",
          .says = "Keep the checkpoint with the lowest validation loss beside the newest ones.",
          .aliases = {{"load_best_model_at_end"}},
      }),
      option<&R::trainer, &T::cuda_graphs>({
          .key = "trainer.cuda_graphs",
          .says = "Record micro-steps and replay them as CUDA graphs, one per shape of batches that recurs (not with packed records).",
      }),
      option<&R::trainer, &T::fp8>({
          .key = "trainer.fp8",
          .says = "Matmuls of blocks in 8 bits: e4m3 forward, e5m2 gradients; for H100 and later.",
          .flags = {"--fp8"},
      }),
      option<&R::trainer, &T::checkpoint_dir>({
          .key = "trainer.checkpoint_dir",
          .says = "Folder for checkpoints.",
          .zero = "<run folder>/checkpoints",
      }),
      option<&R::trainer, &T::log_interval>({
          .key = "trainer.log_interval",
          .says = "Steps between the lines of progress, on the terminal and in metrics.jsonl.",
          .unit = "steps",
          .range = at_least(1),
          .aliases = {{"logging_steps"}, {"log_every_n_steps"}, {"log_every"}},
          .flags = {"--log-interval"},
      }),
      option<&R::trainer, &T::save_interval>({
          .key = "trainer.save_interval",
          .says = "Steps between checkpoints.",
          .unit = "steps",
          .range = at_least(0),
          .zero = "only at the end",
          .aliases = {{"save_steps"}, {"save_every"}, {"checkpoint_interval"}},
          .flags = {"--save-interval"},
      }),
      option<&R::trainer, &T::max_checkpoints>({
          .key = "trainer.max_checkpoints",
          .says = "Newest checkpoints to keep.",
          .unit = "checkpoints",
          .range = at_least(0),
          .zero = "keep all",
          .aliases = {{"save_total_limit"}, {"keep_last_n"}},
          .flags = {"--max-checkpoints"},
      }),
      option<&R::trainer, &T::eval_interval>({
          .key = "trainer.eval_interval",
          .says = "Steps between evaluations on the validation split.",
          .unit = "steps",
          .range = at_least(0),
          .zero = "only at the end",
          .aliases = {{"eval_steps"}, {"eval_every"}},
          .flags = {"--eval-interval"},
      }),
      option<&R::trainer, &T::eval_batches>({
          .key = "trainer.eval_batches",
          .says = "Batches of one evaluation.",
          .unit = "batches",
          .range = at_least(0),
          .zero = "the whole validation split",
          .aliases = {{"eval_iters"}, {"max_eval_batches"}},
      }),
  };
}

std::vector<Option> devices() {
  return {
      option<&R::trainer, &T::target_device>({
          .key = "trainer.target_device",
          .says = "Kind of device to train on; auto takes GPUs where there are any.",
          .aliases = {{"train_device"}, {"device"}, {"accelerator"}, {"use_cpu", "cpu"}, {"no_cuda", "cpu"}},
          .flags = {"--device"},
      }),
      option<&R::trainer, &T::distributed, &DistributedConfig::enabled>({
          .key = "trainer.distributed.enabled",
          .says = "Train on several devices; false uses one.",
          .aliases = {{"enable_multi_gpu"}, {"multi_gpu"}},
      }),
      option<&R::trainer, &T::distributed, &DistributedConfig::backend>({
          .key = "trainer.distributed.backend",
          .says = "What carries gradients between ranks: nccl between GPUs; cpu, memory that ranks of a machine share, which device "
                  "tensors take a detour through; gloo, its connections everywhere.",
          .aliases = {{"ddp_backend"}, {"distributed_backend"}, {"sync_backend"}},
          .flags = {"--sync-backend", "--distributed-backend"},
      }),
      option<&R::trainer, &T::distributed, &DistributedConfig::gpu_ids>({
          .key = "trainer.distributed.gpu_ids",
          .says = "GPUs to use, by their number among the visible ones.",
          .range = between(0, 1 << 16),
          .zero = "all that are visible",
          .zero_words = {"all", "auto"},
          .aliases = {{"device_indexes"}, {"device_ids"}, {"gpus"}},
          .flags = {"--gpus"},
          .example = "[0, 1]",
      }),
  };
}

std::vector<Option> schedule() {
  return {
      option<&R::trainer, &T::lr_scaling>({
          .key = "trainer.lr_scaling",
          .says = "How the learning rate grows with the ranks: linear multiplies by their number, sqrt by its root.",
          .aliases = {{"learning_rate_scaler"}},
          .flags = {"--lr-scaling"},
      }),
      option<&R::trainer, &T::lr_schedule>({
          .key = "trainer.lr_schedule",
          .says = "Course of the learning rate after warm-up; wsd holds it, then decays over decay_fraction of the steps.",
          .aliases = {{"lr_scheduler_type"}, {"lr_scheduler"}, {"learning_rate_scheduler"}},
          .flags = {"--lr-schedule"},
      }),
      option<&R::trainer, &T::warmup_steps>({
          .key = "trainer.warmup_steps",
          .says = "Steps over which the learning rate rises from 0.",
          .unit = "steps",
          .range = at_least(0),
          .aliases = {{"learning_rate_warmup_steps"}, {"num_warmup_steps"}, {"lr_warmup_steps"}, {"warmup_iters"}},
          .flags = {"--warmup-steps"},
      }),
      option<&R::trainer, &T::warmup_ratio>({
          .key = "trainer.warmup_ratio",
          .says =
              "Share of all steps over which the learning rate rises from 0, rounded up; with warmup_steps as well, the shorter counts.",
          .range = between(0, 1),
          .zero = "warmup_steps says it",
          .aliases = {{"lr_warmup_ratio"}},
          .flags = {"--warmup-ratio"},
          .example = "0.03",
      }),
      option<&R::trainer, &T::min_lr_ratio>({
          .key = "trainer.min_lr_ratio",
          .says = "Learning rate at the end, as a share of the highest.",
          .range = between(0, 1),
          .aliases = {{"min_lr_rate"}},
      }),
      option<&R::trainer, &T::decay_fraction>({
          .key = "trainer.decay_fraction",
          .says = "Share of all steps over which wsd decays.",
          .range = between(0, 1),
      }),
  };
}

std::vector<Option> optimizer() {
  return {
      option<&R::trainer, &T::weight_decay>({
          .key = "trainer.weight_decay",
          .says = "Weight decay, on matrices only; decoupled, but for sgd, where it is part of the gradient.",
          .range = between(0, 1000),
          .flags = {"--weight-decay"},
      }),
      option<&R::trainer, &T::beta1>({
          .key = "trainer.beta1",
          .says = "AdamW and Lion: decay of the average gradient.",
          .range = from_below(0, 1),
          .aliases = {{"adam_beta1"}},
      }),
      option<&R::trainer, &T::beta2>({
          .key = "trainer.beta2",
          .says = "AdamW: decay of the average squared gradient. Lion: decay of the average that is kept.",
          .range = from_below(0, 1),
          .aliases = {{"adam_beta2"}},
      }),
      option<&R::trainer, &T::epsilon>({
          .key = "trainer.epsilon",
          .says = "AdamW: added to the denominator.",
          .range = above(0, 1),
          .aliases = {{"adam_epsilon"}, {"eps"}},
      }),
      option<&R::trainer, &T::max_grad_norm>({
          .key = "trainer.max_grad_norm",
          .says = "Gradients are scaled down to this global norm.",
          .range = at_least(0),
          .zero = "no clipping",
          .aliases = {{"clip_grad_norm"}, {"grad_clip"}, {"gradient_clip_val"}},
      }),
      option<&R::trainer, &T::seed>({
          .key = "trainer.seed",
          .says = "Seed of initial weights, sample order and every other draw.",
          .range = at_least(0),
          .aliases = {{"random_seed"}},
          .flags = {"--seed"},
      }),
      option<&R::trainer, &T::max_skipped_steps>({
          .key = "trainer.max_skipped_steps",
          .says = "This many steps in a row with a loss or gradient that is not finite end the run.",
          .unit = "steps",
          .range = at_least(1),
      }),
      option<&R::trainer, &T::initial_loss_scale>({
          .key = "trainer.initial_loss_scale",
          .says = "First loss scale of f16.",
          .range = between(1, 4294967296.0),
      }),
      option<&R::trainer, &T::loss_scale_window>({
          .key = "trainer.loss_scale_window",
          .says = "Good steps in a row after which the loss scale of f16 doubles.",
          .unit = "steps",
          .range = at_least(1),
      }),
      option<&R::trainer, &T::deterministic>({
          .key = "trainer.deterministic",
          .says = "Only operations whose result is the same every time, even if slower.",
          .aliases = {{"full_determinism"}},
          .flags = {"--deterministic"},
      }),
  };
}

}  // namespace

std::vector<Option> trainer_options() {
  std::vector<Option> all;
  for (auto part : {batch_and_length, schedule, optimizer, rhythm, devices}) {
    for (Option& entry : part()) all.push_back(std::move(entry));
  }
  return all;
}

}  // namespace lockstep::config
