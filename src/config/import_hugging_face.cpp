// The keys of Hugging Face TrainingArguments, with those of TRL's SFT scripts and PEFT that stand beside them.
#include <array>

#include "base/text.h"
#include "config/import_table.h"
#include "config/value.h"

namespace lockstep::config {
namespace {

void scheduler_kwargs(Importer& to, const YAML::Node& value) {
  if (!value.IsMap() || value.size() == 0) return to.ignore("empty");
  for (const auto& item : value) {
    to.enter("lr_scheduler_kwargs." + item.first.Scalar(), item.second);
    if (item.first.Scalar() == "min_lr_rate")
      to.set("trainer.min_lr_ratio", item.second);
    else
      to.refuse("say it in the section trainer: min_lr_ratio, decay_fraction");
  }
}

void load_best(Importer& to, const YAML::Node& value) {
  to.on("load_best_model_at_end") ? to.set("trainer.keep_best", "true") : to.ignore("the best checkpoint is kept beside the newest");
}

void torch_dtype(Importer& to, const YAML::Node& value) {
  import_text(value) == "auto" ? to.ignore("the model's folder says it") : to.set("model.dtype", value);
}

void timeout(Importer& to, const YAML::Node& value) {
  constexpr double their_default_s = 1800, longest_s = 1e7;
  const auto seconds = base::parse_number(import_text(value));
  if (seconds && *seconds == their_default_s) return to.ignore("their default; parallel.timeout_s");
  if (seconds && *seconds > longest_s) return to.ignore("as good as none; parallel.timeout_s");
  to.set("parallel.timeout_s", value);
}

void backend(Importer& to, const YAML::Node& value) {
  const std::string name = import_text(value);
  name == "nccl" || name == "gloo" ? to.set("trainer.distributed.backend", value) : to.refuse("there are nccl and gloo");
}

void bits(Importer& to, const YAML::Node& value, std::string_view ours) {
  if (!read_boolean(import_text(value)).value_or(false)) return to.ignore("off");
  to.on("use_peft") ? to.set(ours, "true") : to.refuse("quantised weights are frozen: train an adapter, use_peft: true");
}
void four_bits(Importer& to, const YAML::Node& value) { bits(to, value, "model.load_in_4bit"); }
void eight_bits(Importer& to, const YAML::Node& value) { bits(to, value, "model.load_in_8bit"); }

void epochs(Importer& to, const YAML::Node& value) {
  const auto steps = base::parse_integer(to.text("max_steps"));
  steps && *steps > 0 ? to.ignore("max_steps says it") : to.set("trainer.num_epochs", value);
}

constexpr std::string_view own_kernels = "Lockstep's own fused kernels are always on";
constexpr std::string_view tracker = "every run writes metrics.jsonl; monitor.tensorboard writes TensorBoard files";
constexpr std::string_view launcher = "lockstep starts and numbers the ranks";
constexpr std::string_view no_sharding =
    "every GPU holds the whole model; where memory is short see docs/finetuning.md, What to try when memory is full";
constexpr std::string_view no_hub = "nothing is uploaded; `lockstep merge` and the adapter folder give what can be";
constexpr std::string_view no_metrics = "evaluation says loss, perplexity and accuracy";

constexpr std::array rows = std::to_array<ImportRow>({
    converted("model_name_or_path", import_model),
    converted("torch_dtype", torch_dtype),
    converted("dtype", torch_dtype),
    ignored("attn_implementation", own_kernels),
    ignored("use_flash_attention_2", own_kernels),
    ignored("use_liger_kernel", own_kernels),
    ignored("use_liger", own_kernels),
    only_off("trust_remote_code", "code of a model is never run; the families in docs/finetuning.md are built in"),
    converted("dataset_name", import_data_path),
    converted("train_file", import_data_path),
    only_off("dataset_config", "a part of a dataset on the Hub; fetch that part as JSONL"),
    only_off("dataset_config_name", "a part of a dataset on the Hub; fetch that part as JSONL"),
    ignored("dataset_train_split", "a file is read whole"),
    ignored("dataset_num_proc", "all cores tokenise"),
    only_off("dataset_kwargs", "leave it out"),
    flagged("assistant_only_loss", "data.train_on", "responses"),
    flagged("completion_only_loss", "data.train_on", "responses"),
    flagged("eval_packing", "data.packing", "true"),
    converted("load_in_4bit", four_bits),
    converted("load_in_8bit", eight_bits),
    converted("lora_target_modules", import_lora_targets),
    only_off("lora_task_type", "leave it out"),
    converted("output_dir", import_output),
    ignored("run_name", "output_dir names the run; --name names another"),
    ignored("overwrite_output_dir", "a new name makes a new run folder; nothing is written over"),
    ignored("do_train", "`lockstep train` does"),
    ignored("do_eval", "evaluation comes with training"),
    only_off("do_predict", "`lockstep generate --file` does"),
    copied("per_device_train_batch_size", "trainer.batch_size"),
    ignored("per_device_eval_batch_size", "evaluation uses trainer.batch_size"),
    ignored("per_gpu_*", "an old name"),
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
    converted("num_train_epochs", epochs),
    converted("max_steps", import_max_steps),
    converted("lr_scheduler_type", import_schedule),
    converted("lr_scheduler_kwargs", scheduler_kwargs),
    converted("warmup_ratio", import_warmup_ratio),
    copied("warmup_steps", "trainer.warmup_steps"),
    converted("optim", import_optimizer),
    only_off("optim_args", "say them in the section trainer"),
    only_off("optim_target_modules", "GaLore is not built"),
    flagged("adafactor", "trainer.optimizer", "adafactor"),
    ignored("log_level*", "ranks/N.log of the run folder"),
    ignored("log_on_each_node", "ranks/N.log of the run folder"),
    ignored("logging_dir", tracker),
    ignored("logging_strategy", "progress is shown every trainer.log_interval steps"),
    ignored("logging_first_step", "the first step is always shown"),
    converted("logging_steps", import_logging_steps),
    ignored("logging_nan_inf_filter", "steps that are not finite are skipped and said"),
    converted("save_strategy", import_save_strategy),
    converted("save_steps", import_save_steps),
    copied("save_total_limit", "trainer.max_checkpoints"),
    ignored("save_safetensors", "always"),
    ignored("save_on_each_node", "ranks share one folder"),
    ignored("save_only_model", "a checkpoint can always be resumed from"),
    only_off("restore_callback_states_from_checkpoint", "leave it out"),
    converted("eval_strategy", import_eval_strategy),
    converted("evaluation_strategy", import_eval_strategy),
    converted("eval_steps", import_eval_steps),
    ignored("eval_delay", "evaluations are short"),
    only_off("eval_on_start", "leave it out"),
    ignored("eval_do_concat_batches", no_metrics),
    ignored("eval_use_gather_object", no_metrics),
    ignored("batch_eval_metrics", no_metrics),
    ignored("prediction_loss_only", no_metrics),
    ignored("include_inputs_for_metrics", no_metrics),
    ignored("include_for_metrics", no_metrics),
    ignored("include_tokens_per_second", "metrics.jsonl has them"),
    ignored("include_num_input_tokens_seen", "metrics.jsonl has them"),
    ignored("label_names", "tokens are the labels"),
    only_off("label_smoothing_factor", "the loss is plain cross-entropy"),
    converted("load_best_model_at_end", load_best),
    ignored("metric_for_best_model", "the validation loss decides"),
    ignored("greater_is_better", "the validation loss decides"),
    ignored("ignore_data_skip", "a run goes on at the same sample"),
    copied("seed", "trainer.seed"),
    ignored("data_seed", "trainer.seed"),
    copied("full_determinism", "trainer.deterministic"),
    converted("bf16", import_bf16),
    flagged("fp16", "model.dtype", "f16"),
    ignored("fp16_*", "one way of mixed precision"),
    ignored("half_precision_backend", "one way of mixed precision"),
    ignored("bf16_full_eval", "evaluation runs in model.dtype"),
    ignored("tf32", "matmuls run in model.dtype"),
    ignored("jit_mode_eval", own_kernels),
    ignored("use_ipex", own_kernels),
    ignored("torch_compile*", own_kernels),
    ignored("torchdynamo", own_kernels),
    converted("gradient_checkpointing", import_recompute),
    ignored("gradient_checkpointing_kwargs", "recomputing is exact here"),
    flagged("activation_offloading", "trainer.offload_checkpoints", "true"),
    ignored("torch_empty_cache_steps", "memory is planned, not cached"),
    copied("dataloader_num_workers", "data.workers"),
    copied("dataloader_prefetch_factor", "data.prefetch"),
    copied("dataloader_pin_memory", "data.pin_memory"),
    ignored("dataloader_persistent_workers", "always"),
    ignored("dataloader_drop_last", "no sample is dropped; a short batch is filled with samples of weight 0"),
    ignored("group_by_length", "samples come in the global order; data.packing saves more padding"),
    ignored("length_column_name", "lengths are counted"),
    ignored("remove_unused_columns", "other fields of a record are passed over"),
    ignored("past_index", "leave it out"),
    ignored("disable_tqdm", "--headless prints JSON lines"),
    ignored("use_legacy_prediction_loop", no_metrics),
    ignored("skip_memory_metrics", "metrics.jsonl has memory"),
    converted("report_to", import_report_to),
    ignored("project", tracker),
    ignored("trackio_space_id", tracker),
    converted("resume_from_checkpoint", import_resume),
    only_off("fsdp", no_sharding),
    ignored("fsdp_*", "only read with fsdp"),
    only_off("deepspeed*", no_sharding),
    ignored("accelerator_config", launcher),
    only_off("parallelism_config", "one model is on one GPU"),
    copied("ddp_find_unused_parameters", "parallel.find_unused_parameters"),
    copied("ddp_bucket_cap_mb", "parallel.bucket_cap_mb"),
    ignored("ddp_broadcast_buffers", "a decoder has no buffers"),
    converted("ddp_backend", backend),
    converted("ddp_timeout", timeout),
    ignored("local_rank", launcher),
    ignored("mp_parameters", launcher),
    only_off("tpu_*", "GPUs and CPUs only"),
    flagged("use_cpu", "trainer.target_device", "cpu"),
    flagged("no_cuda", "trainer.target_device", "cpu"),
    only_off("use_mps_device", "GPUs and CPUs only"),
    ignored("debug", "reports name rank, step and phase by themselves"),
    only_off("push_to_hub", no_hub),
    ignored("push_to_hub_*", no_hub),
    ignored("hub_*", no_hub),
    only_off("neftune_noise_alpha", "noise on embeddings is not built"),
    only_off("liger_kernel_config", own_kernels),
});

constexpr std::array defaults = std::to_array<ImportDefault>({
    {"learning_rate", "trainer.learning_rate", "5e-5"},
    {"num_train_epochs", "trainer.num_epochs", "3"},
    {"lr_scheduler_type", "trainer.lr_schedule", "linear"},
    {"weight_decay", "trainer.weight_decay", "0"},
    {"adam_beta2", "trainer.beta2", "0.999"},
    {"lr_scheduler_kwargs", "trainer.min_lr_ratio", "0"},
    {"eval_strategy", "data.validation_fraction", "0"},
});

}  // namespace

const ImportProgram& hugging_face() {
  static const ImportProgram program = {
      "Hugging Face",
      "huggingface",
      {"per_device_train_batch_size", "num_train_epochs", "lr_scheduler_type", "output_dir", "logging_steps", "optim", "save_strategy"},
      rows,
      defaults};
  return program;
}

}  // namespace lockstep::config
