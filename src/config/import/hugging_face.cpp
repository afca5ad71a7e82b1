// The keys of Hugging Face TrainingArguments, from transformers 4 and 5.
#include <array>

#include "base/text.h"
#include "config/import/table.h"
#include "config/table/value.h"

namespace lockstep::config {
namespace {

void load_best(Importer& to, const YAML::Node&) {
  to.on("load_best_model_at_end") ? to.set("trainer.keep_best", "true") : to.ignore("the best checkpoint is kept beside the newest");
}

void torch_dtype(Importer& to, const YAML::Node& value) {
  const std::string name = import_word(value);
  if (name == "auto") return to.ignore("the model's folder says it");
  // Weights in f32 that are computed with in bf16 or f16 are what model.dtype of that name means here.
  if (name == "float32" && (to.on("bf16") || to.on("fp16"))) return to.ignore("bf16 or fp16 says what is computed in; updates are in f32");
  to.set("model.dtype", name);
}

void backend(Importer& to, const YAML::Node& value) {
  const std::string name = import_text(value);
  name == "nccl" || name == "gloo" ? to.set("trainer.distributed.backend", value) : to.refuse("there are nccl and gloo");
}

void include_tokens(Importer& to, const YAML::Node&) { to.ignore("metrics.jsonl counts tokens"); }

constexpr std::string_view no_metrics = "evaluation says loss, perplexity and accuracy";
constexpr std::string_view gpus_only = "GPUs and CPUs only";

constexpr std::array hugging_face_rows = std::to_array<ImportRow>({
    converted("model_name_or_path", "model.path", import_model),
    converted("torch_dtype", "model.dtype", torch_dtype),
    converted("dtype", "model.dtype", torch_dtype),
    ignored("attn_implementation", own_kernels),
    ignored("use_flash_attention_2", own_kernels),
    ignored("use_liger_kernel", own_kernels),
    ignored("use_liger", own_kernels),
    ignored("liger_kernel_config", own_kernels),
    ignored("trust_remote_code", no_remote_code),
    copied("tokenizer_name_or_path", "data.tokenizer"),
    copied("tokenizer_name", "data.tokenizer"),
    ignored("model_revision", "a folder is what it is"),
    ignored("cache_dir", "nothing is downloaded"),
    ignored("use_fast_tokenizer", "there is one kind"),
    converted("train_file", "data.path", import_data_path),
    copied("validation_file", "data.validation_path"),
    copied("block_size", "data.seq_len"),
    converted("output_dir", "name, output", import_output),
    ignored("run_name", "output_dir names the run; --name names another"),
    ignored("overwrite_output_dir", "a new name makes a new run folder; nothing is written over"),
    ignored("do_train", "`lockstep train` does"),
    ignored("do_eval", "evaluation comes with validation data"),
    only_off("do_predict", "`lockstep generate --file` does"),
    copied("per_device_train_batch_size", "trainer.batch_size"),
    ignored("per_device_eval_batch_size", "evaluation uses trainer.batch_size"),
    ignored("per_gpu_eval_batch_size", "evaluation uses trainer.batch_size"),
    copied("per_gpu_train_batch_size", "trainer.batch_size"),
    copied("gradient_accumulation_steps", "trainer.gradient_accumulation"),
    ignored("eval_accumulation_steps", "evaluation keeps no logits"),
    copied("auto_find_batch_size", "trainer.auto_find_batch_size"),
    ignored("average_tokens_across_devices", "always: the loss is over all tokens of all ranks"),
    copied("learning_rate", "trainer.learning_rate"),
    copied("weight_decay", "trainer.weight_decay"),
    copied("adam_beta1", "trainer.beta1"),
    copied("adam_beta2", "trainer.beta2"),
    copied("adam_epsilon", "trainer.epsilon"),
    copied("max_grad_norm", "trainer.max_grad_norm"),
    converted("num_train_epochs", "trainer.num_epochs", import_epochs),
    converted("max_steps", "trainer.max_steps", import_max_steps),
    converted("lr_scheduler_type", "trainer.lr_schedule", import_schedule),
    converted("lr_scheduler_kwargs", "trainer.min_lr_ratio, trainer.decay_fraction", import_scheduler_kwargs),
    converted("warmup_ratio", "trainer.warmup_ratio", import_warmup_ratio),
    converted("warmup_steps", "trainer.warmup_steps, trainer.warmup_ratio", import_warmup_steps),
    converted("optim", "trainer.optimizer", import_optimizer),
    only_off("optim_args", "say them in the section trainer"),
    only_off("optim_target_modules", "GaLore is not built"),
    flagged("adafactor", "trainer.optimizer", "adafactor"),
    ignored("log_level*", "ranks/N.log of the run folder"),
    ignored("log_on_each_node", "ranks/N.log of the run folder"),
    ignored("logging_dir", no_tracker),
    ignored("logging_strategy", "progress is shown every trainer.log_interval steps"),
    ignored("logging_first_step", "the first step is always shown"),
    converted("logging_steps", "trainer.log_interval", import_logging_steps),
    ignored("logging_nan_inf_filter", "steps that are not finite are skipped and said"),
    converted("save_strategy", "trainer.save_interval", import_save_strategy),
    converted("save_steps", "trainer.save_interval", import_save_steps),
    copied("save_total_limit", "trainer.max_checkpoints"),
    ignored("save_safetensors", "always"),
    ignored("save_on_each_node", "ranks share one folder"),
    ignored("save_only_model", "a checkpoint can always be resumed from"),
    ignored("enable_jit_checkpoint", "a signal saves what is trained, and ends the run"),
    ignored("restore_callback_states_from_checkpoint", "there are no callbacks"),
    converted("eval_strategy", "", import_eval_strategy),
    converted("evaluation_strategy", "", import_eval_strategy),
    converted("eval_steps", "trainer.eval_interval", import_eval_steps),
    ignored("eval_delay", "evaluations are short"),
    ignored("eval_on_start", "the first evaluation comes after trainer.eval_interval steps"),
    ignored("eval_do_concat_batches", no_metrics),
    ignored("eval_use_gather_object", no_metrics),
    ignored("batch_eval_metrics", no_metrics),
    ignored("prediction_loss_only", no_metrics),
    ignored("include_inputs_for_metrics", no_metrics),
    ignored("include_for_metrics", no_metrics),
    ignored("include_tokens_per_second", "metrics.jsonl has them"),
    converted("include_num_input_tokens_seen", "", include_tokens),
    ignored("label_names", "tokens are the labels"),
    only_off("label_smoothing_factor", "the loss is plain cross-entropy"),
    converted("load_best_model_at_end", "trainer.keep_best", load_best),
    ignored("metric_for_best_model", "the validation loss decides"),
    ignored("greater_is_better", "the validation loss decides"),
    ignored("ignore_data_skip", "a run goes on at the same sample"),
    copied("seed", "trainer.seed"),
    ignored("data_seed", "trainer.seed"),
    copied("full_determinism", "trainer.deterministic"),
    converted("bf16", "model.dtype", import_bf16),
    flagged("fp16", "model.dtype", "f16"),
    ignored("fp16_*", "one way of mixed precision"),
    ignored("half_precision_backend", "one way of mixed precision"),
    ignored("bf16_full_eval", "evaluation runs in model.dtype"),
    ignored("tf32", "matmuls run in model.dtype"),
    ignored("use_cache", "training has no cache"),
    ignored("jit_mode_eval", own_kernels),
    ignored("use_ipex", own_kernels),
    ignored("torch_compile*", own_kernels),
    ignored("torchdynamo", own_kernels),
    converted("gradient_checkpointing", "trainer.recompute", import_recompute),
    ignored("gradient_checkpointing_kwargs", "recomputing is exact here"),
    ignored("torch_empty_cache_steps", "memory is planned, not cached"),
    copied("dataloader_num_workers", "data.workers"),
    copied("dataloader_prefetch_factor", "data.prefetch"),
    copied("dataloader_pin_memory", "data.pin_memory"),
    ignored("dataloader_persistent_workers", "always"),
    ignored("dataloader_multiprocessing_context", "threads read data"),
    only("dataloader_in_order", "true|off", "batches come in order"),
    ignored("dataloader_drop_last", "no sample is dropped; a short batch is filled with samples of weight 0"),
    only("train_sampling_strategy", "random|group_by_length", "data.shuffle = false keeps the file's order"),
    ignored("group_by_length", "samples come in the global order; data.packing saves more padding"),
    ignored("length_column_name", "lengths are counted"),
    ignored("remove_unused_columns", "other fields of a record are passed over"),
    ignored("past_index", "training keeps no states"),
    ignored("disable_tqdm", "--headless prints JSON lines"),
    ignored("use_legacy_prediction_loop", no_metrics),
    ignored("skip_memory_metrics", "metrics.jsonl has memory"),
    converted("report_to", "monitor.tensorboard, monitor.wandb", import_report_to),
    ignored("project", no_tracker),
    ignored("trackio_*", no_tracker),
    converted("wandb_project", "monitor.wandb, monitor.wandb_project", import_wandb_project),
    ignored("wandb_*", no_tracker),
    converted("resume_from_checkpoint", "checkpoint.resume", import_resume),
    converted("fsdp", "parallel.shard", import_fsdp),
    converted("fsdp_config", "parallel.shard", import_fsdp_config),
    converted("fsdp_activation_checkpointing", "trainer.recompute", import_fsdp_checkpointing),
    ignored("fsdp_*", "only read with fsdp"),
    converted("deepspeed", "parallel.shard", import_deepspeed),
    ignored("deepspeed_*", "only read with deepspeed"),
    ignored("accelerator_config", launcher),
    only_off("parallelism_config", "a model is cut by parallel.shard alone"),
    copied("ddp_find_unused_parameters", "parallel.find_unused_parameters"),
    copied("ddp_bucket_cap_mb", "parallel.bucket_cap_mb"),
    ignored("ddp_broadcast_buffers", "a decoder has no buffers"),
    ignored("ddp_static_graph", "buckets are always in one order"),
    converted("ddp_backend", "trainer.distributed.backend", backend),
    converted("ddp_timeout", "parallel.timeout_s", import_timeout),
    ignored("local_rank", launcher),
    ignored("mp_parameters", launcher),
    ignored("dispatch_batches", launcher),
    ignored("split_batches", launcher),
    only_off("sharded_ddp", "say it by parallel.shard: optimizer (stage 1), gradients (stage 2) or full (stage 3)"),
    ignored("xpu_backend", gpus_only),
    ignored("ray_scope", "one run is trained, not a search over many"),
    only_off("tpu_*", gpus_only),
    flagged("use_cpu", "trainer.target_device", "cpu"),
    flagged("no_cuda", "trainer.target_device", "cpu"),
    only_off("use_mps_device", gpus_only),
    ignored("debug", "reports name rank, step and phase by themselves"),
    noted("push_to_hub", no_hub),
    ignored("push_to_hub_*", no_hub),
    ignored("hub_*", no_hub),
    only_off("neftune_noise_alpha", "noise on embeddings is not built"),
    ignored("sortish_sampler", "samples come in the global order"),
    only_off("predict_with_generate", generation),
    ignored("generation_*", generation),
    ignored("_n_gpu", launcher),
});

constexpr std::array hugging_face_defaults = std::to_array<ImportDefault>({
    {"per_device_train_batch_size", "trainer.batch_size", "8"},
    {"gradient_accumulation_steps", "trainer.gradient_accumulation", "1"},
    {"learning_rate", "trainer.learning_rate", "5e-5"},
    {"lr_scheduler_type", "trainer.lr_schedule", "linear"},
    {"weight_decay", "trainer.weight_decay", "0"},
    {"adam_beta2", "trainer.beta2", "0.999"},
    {"lr_scheduler_kwargs", "trainer.min_lr_ratio", "0"},
    {"eval_dataset", "data.validation_fraction", "0"},
    {"save_total_limit", "trainer.max_checkpoints", "0"},
});

void fill_in_hugging_face(Importer& to) {
  if (to.assigned("trainer.max_steps").empty()) to.fill_in("num_train_epochs", "trainer.num_epochs", "3");
}

}  // namespace

const ImportProgram& hugging_face() {
  static const ImportProgram program = {.name = "Hugging Face",
                                        .word = "huggingface",
                                        .signs = {"per_device_train_batch_size", "num_train_epochs", "lr_scheduler_type", "output_dir",
                                                  "logging_steps", "optim", "save_strategy"},
                                        .rows = hugging_face_rows,
                                        .defaults = hugging_face_defaults,
                                        .fill_in = fill_in_hugging_face,
                                        .model_key = "model_name_or_path"};
  return program;
}

}  // namespace lockstep::config
