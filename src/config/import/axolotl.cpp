// The keys of Axolotl files.
#include "config/import/axolotl.h"

#include <array>

#include "base/text.h"
#include "config/value.h"

namespace lockstep::config {
namespace {

void adapter(Importer& to, const YAML::Node& value) {
  const std::string kind = value.IsScalar() ? value.Scalar() : "";
  if (kind != "lora" && kind != "qlora") return to.refuse("adapters are lora and qlora");
  to.set("lora.enabled", "true");
  if (kind == "qlora") to.set("model.load_in_4bit", "true");
}

// A quantised base without an adapter is how some files say "load it so"; it cannot be trained whole.
void bits(Importer& to, const YAML::Node& value, std::string_view ours) {
  const auto yes = value.IsScalar() ? read_boolean(value.Scalar()) : std::nullopt;
  if (!yes) return to.refuse("must be true or false");
  if (!*yes) return to.ignore("off");
  if (!to.has("adapter")) return to.refuse("quantised weights are frozen: set adapter: lora, or leave it out");
  to.set(ours, "true");
}
void four_bits(Importer& to, const YAML::Node& value) { bits(to, value, "model.load_in_4bit"); }
void eight_bits(Importer& to, const YAML::Node& value) { bits(to, value, "model.load_in_8bit"); }

constexpr std::array bnb_rows = std::to_array<ImportRow>({
    converted("bnb_4bit_quant_type", "", import_quant_type),
    copied("bnb_4bit_use_double_quant", "model.double_quant"),
    ignored("bnb_4bit_compute_dtype", "matmuls run in model.dtype"),
    ignored("bnb_4bit_quant_storage", "weights are stored as bytes"),
    only("load_in_4bit", "true|off", "adapter and load_in_4bit say it"),
    only("llm_int8_threshold", "6.0|6|off", "8-bit weights are blockwise here, without outliers"),
    only_off("llm_int8_has_fp16_weight", "8-bit weights are frozen"),
    only_off("llm_int8_skip_modules", "every matrix of a block is quantised"),
});

void bnb_config(Importer& to, const YAML::Node& value) {
  if (import_is_off(value)) return to.ignore("empty");
  value.IsMap() ? to.walk("bnb_config_kwargs", value, bnb_rows) : to.refuse("must be a map");
}

void target_linear(Importer& to, const YAML::Node&) {
  if (!to.on("lora_target_linear")) return to.ignore("off");
  to.set("lora.target_modules", "[all-linear]");
}

void target_modules(Importer& to, const YAML::Node& value) {
  if (to.on("lora_target_linear")) return to.ignore("lora_target_linear takes all of them");
  import_lora_targets(to, value);
}

// Without bf16 and fp16 Axolotl loads f32, or f16 where weights are held in 8 bits.
void bf16(Importer& to, const YAML::Node& value) {
  const bool off = value.IsScalar() && !read_boolean(value.Scalar()).value_or(true);
  const bool half = to.on("fp16") || to.on("float16");
  if (!off) return import_bf16(to, value);
  if (half || to.on("bfloat16") || (to.has("bf16") && import_word(to.file()["bf16"]) == "auto")) return to.ignore("off");
  to.set("model.dtype", to.on("load_in_8bit") ? "f16" : "f32");
}

void batch_size(Importer& to, const YAML::Node& value) {
  const auto total = base::parse_integer(import_text(value)), micro = base::parse_integer(to.text("micro_batch_size"));
  if (to.has("gradient_accumulation_steps") || !total || !micro || *micro < 1 || *total % *micro != 0)
    return to.refuse("say micro_batch_size and gradient_accumulation_steps");
  to.set("trainer.gradient_accumulation", std::to_string(*total / *micro));
}

void shuffle(Importer& to, const YAML::Node& value) {
  const auto yes = value.IsScalar() ? read_boolean(value.Scalar()) : std::nullopt;
  if (!yes) return to.refuse("must be true or false");
  *yes ? to.ignore("as here") : to.set("data.shuffle", "false");
}

void too_long(Importer& to, const YAML::Node& value) {
  const std::string word = import_word(value);
  if (word == "drop") return to.set("data.too_long", "skip");
  if (word == "truncate") return to.set("data.too_long", "cut");
  if (word == "raise") return to.set("data.too_long", "error");
  to.refuse("there are drop, truncate and raise");
}

// Kernels that compute the same are built in; what else plugins do is not.
void plugins(Importer& to, const YAML::Node& value) {
  const std::vector<YAML::Node> names =
      value.IsSequence() ? std::vector<YAML::Node>(value.begin(), value.end()) : std::vector<YAML::Node>{value};
  std::size_t number = 0;
  for (const YAML::Node& node : names) {
    const std::string name = node.IsScalar() ? node.Scalar() : "";
    to.enter(fmt::format("plugins[{}]", number++), node);
    if (name.find("LigerPlugin") != name.npos || name.find("CutCrossEntropyPlugin") != name.npos)
      to.ignore(own_kernels);
    else
      to.refuse("what this plugin does is not built");
  }
}

void activation_offloading(Importer& to, const YAML::Node& value) {
  import_is_off(value) ? to.ignore("off") : to.set("trainer.offload_checkpoints", "true");
}

constexpr std::string_view one_gpu = "one model and one sequence are on one GPU";
constexpr std::string_view folder_says = "the model's folder says it";
constexpr std::string_view evaluation = "evaluation says loss, perplexity and accuracy";
constexpr std::string_view launcher = "lockstep starts and numbers the ranks";
constexpr std::string_view only_came = "only for optimizers that are not built";

constexpr std::array rows = std::to_array<ImportRow>({
    converted("base_model", "model.path", import_model),
    ignored("base_model_config", "the model's folder has its config.json"),
    ignored("model_type", "told by config.json"),
    ignored("type_of_model", "told by config.json"),
    ignored("cls_model_config", "told by config.json"),
    ignored("model_revision", "a folder is what it is"),
    ignored("revision_of_model", "a folder is what it is"),
    ignored("tokenizer_type", "told by tokenizer.json"),
    ignored("trust_remote_code", no_remote_code),
    copied("tokenizer_config", "data.tokenizer"),
    ignored("tokenizer_use_fast", "there is one kind"),
    ignored("tokenizer_legacy", "tokenizer.json says it"),
    only_off("tokenizer_use_mistral_common", "tokenizer.json is read"),
    ignored("tokenizer_save_jinja_files", "the template is saved with the model"),
    stops("processor_type", no_media),
    ignored("is_falcon_derived_model", "told by config.json"),
    ignored("is_llama_derived_model", "told by config.json"),
    ignored("is_mistral_derived_model", "told by config.json"),
    ignored("is_qwen_derived_model", "told by config.json"),
    ignored("experimental_skip_move_to_device", launcher),
    ignored("use_kernels", own_kernels),
    only_off("model_quantization_config*", "weights are held in model.dtype, NF4 or int8"),
    only_off("overrides_of_model_config", "change config.json in the model's folder"),
    only_off("model_config", "change config.json in the model's folder"),
    only_off("overrides_of_model_kwargs", "change config.json in the model's folder"),
    only_off("model_kwargs", "change config.json in the model's folder"),
    only_off("rope_scaling", "the model's config.json says it"),
    converted("load_in_4bit", "model.load_in_4bit", four_bits),
    converted("load_in_8bit", "model.load_in_8bit", eight_bits),
    converted("bnb_config_kwargs", "model.double_quant", bnb_config),
    only_off("gptq", "weights are held in model.dtype, NF4 or int8"),
    only_off("qat", "training for quantisation is not built"),
    only_off("quantization", "training for quantisation is not built"),
    ignored("strict", "every key is looked at"),

    converted("datasets", "data.path, data.format", axolotl_datasets),
    converted("pretraining_dataset", "data.path, data.text_field", axolotl_pretraining),
    only_off("test_datasets", "give a file with --validation-data"),
    copied("dataset_prepared_path", "data.cache_dir"),
    ignored("dataset_processes", "all cores tokenise"),
    ignored("dataset_num_proc", "all cores tokenise"),
    ignored("dataset_keep_in_memory", "files are mapped"),
    only_off("dataset_shard_num", "data.max_samples takes the first so many records"),
    only_off("dataset_shard_idx", "data.max_samples takes the first so many records"),
    ignored("num_dataset_shards_to_save", "a cache is one file"),
    converted("shuffle_merged_datasets", "data.shuffle", shuffle),
    ignored("shuffle_before_merging_datasets", "samples are shuffled, data.shuffle"),
    only_off("dataset_exact_deduplication",
             "records are trained as they stand; `lockstep data inspect` counts duplicates: take them out first"),
    only_off("skip_prepare_dataset", "data is tokenised before training"),
    ignored("streaming*", "files are mapped, never read whole"),
    ignored("pretrain_multipack*", "records of a pack do not see each other"),
    ignored("pretraining_sample_concatenation", "data.packing says it"),
    converted("val_set_size", "data.validation_fraction", import_validation_size),
    converted("sequence_len", "data.seq_len", import_length),
    ignored("eval_sequence_len", "validation is as long as training"),
    converted("excess_length_strategy", "data.too_long", too_long),
    only_off("min_sample_len", "no record is left out for being short"),
    copied("sample_packing", "data.packing"),
    ignored("eval_sample_packing", "validation is packed as training is"),
    ignored("sample_packing_eff_est", "counted, not estimated"),
    ignored("sample_packing_group_size", "packing looks at all records"),
    ignored("sample_packing_bin_size", "packing looks at all records"),
    ignored("sample_packing_mp_start_method", "packing takes no processes"),
    only_off("sample_packing_sequentially", "data.shuffle = false packs records that stand together"),
    flagged("curriculum_sampling", "data.shuffle", "false"),
    ignored("pad_to_sequence_len", "a batch is as long as its longest record; padding changes no number"),
    ignored("batch_flattening", "padding changes no number"),
    ignored("group_by_length", "packing does more"),
    ignored("multipack_real_batches", "a pack is a row of a batch"),
    only_off("use_pose", "PoSE is not built"),
    ignored("pose_*", "only read with use_pose"),
    converted("train_on_inputs", "data.train_on", import_train_on_inputs),
    converted("chat_template", "data.chat_template", axolotl_chat_template),
    converted("chat_template_jinja", "data.chat_template", axolotl_chat_template_jinja),
    only_off("chat_template_kwargs", "write what they choose into a template of your own and set data.chat_template"),
    ignored("eot_tokens", "the chat template says where turns end"),
    copied("default_system_message", "data.system_prompt"),
    converted("special_tokens", "", axolotl_special_tokens),
    only_off("tokens", "the vocabulary stays as it is; add tokens to the model's folder first"),
    only_off("added_tokens_overrides", "change the tokenizer in the model's folder"),
    ignored("resize_token_embeddings_to_32x", "the shape of the model's folder is kept"),
    only_off("shrink_embeddings", "the shape of the model's folder is kept"),
    ignored("mean_resizing_embeddings", "the shape of the model's folder is kept"),
    ignored("embeddings_skip_upcast", "embeddings are held in model.dtype, updates in f32"),
    only_off("fix_untrained_tokens", "embeddings stay as they are"),

    converted("adapter", "lora.enabled", adapter),
    copied("lora_model_dir", "lora.adapters"),
    copied("lora_r", "lora.rank"),
    copied("lora_alpha", "lora.alpha"),
    copied("lora_dropout", "lora.dropout"),
    converted("lora_target_linear", "lora.target_modules", target_linear),
    converted("lora_target_modules", "lora.target_modules", target_modules),
    only_off("lora_target_parameters", "adapters are on matrices of attention and feed-forward"),
    copied("lora_modules_to_save", "lora.modules_to_save"),
    only_off("lora_fan_in_fan_out", "matrices are [out, in] here"),
    ignored("lora_on_cpu", "memory is used piece by piece"),
    ignored("lora_mlp_kernel", own_kernels),
    ignored("lora_qkv_kernel", own_kernels),
    ignored("lora_o_kernel", own_kernels),
    ignored("lora_embedding_kernel", own_kernels),
    copied("peft_layers_to_transform", "lora.layers_to_transform"),
    only("peft_layers_pattern", "layers|[layers]|off", "blocks are called layers"),
    copied("peft_use_dora", "lora.dora"),
    copied("peft_use_rslora", "lora.rslora"),
    only("peft_init_lora_weights", "true|off", "adapters start as PEFT's standard ones do"),
    ignored("peft_autocast_adapter_dtype", "adapters are updated in f32"),
    ignored("peft_ensure_weight_tying", "tied weights stay tied"),
    only_off("peft*", "initialisations other than PEFT's standard one are not built"),
    ignored("qlora_sharded_model_loading", "every rank reads the model's folder"),
    copied("loraplus_lr_ratio", "lora.b_lr_ratio"),
    ignored("loraplus_lr_embedding", "there are no adapters on embeddings"),
    ignored("merge_lora", "`lockstep merge` does"),
    ignored("merge_method", "`lockstep merge` does"),
    only_off("relora*", "ReLoRA is not built"),
    only_off("jagged_restart*", "ReLoRA is not built"),
    only_off("lisa_n_layers", "LISA is not built"),
    ignored("lisa_*", "only read with lisa_n_layers"),
    only_off("unfrozen_parameters", "choose lora.modules_to_save and lora.layers_to_transform"),

    copied("micro_batch_size", "trainer.batch_size"),
    copied("gradient_accumulation_steps", "trainer.gradient_accumulation"),
    converted("batch_size", "trainer.gradient_accumulation", batch_size),
    ignored("eval_batch_size", "evaluation uses trainer.batch_size"),
    copied("auto_find_batch_size", "trainer.auto_find_batch_size"),
    converted("num_epochs", "trainer.num_epochs", import_epochs),
    converted("max_steps", "trainer.max_steps", import_max_steps),
    converted("optimizer", "trainer.optimizer", import_optimizer),
    only_off("optim_args", "say them in the section trainer"),
    only_off("optim_target_modules", "GaLore is not built"),
    ignored("torchdistx_path", "only for adamw_anyprecision of torchdistx"),
    converted("lr_scheduler", "trainer.lr_schedule", import_schedule),
    converted("lr_scheduler_kwargs", "trainer.min_lr_ratio, trainer.decay_fraction", import_scheduler_kwargs),
    copied("cosine_min_lr_ratio", "trainer.min_lr_ratio"),
    only_off("cosine_constant_lr_ratio", "trainer.lr_schedule = wsd holds the rate before it decays"),
    only_off("lr_quadratic_warmup", "the rate rises along a line"),
    only_off("lr_div_factor", "the schedule one_cycle is not built"),
    copied("learning_rate", "trainer.learning_rate"),
    copied("embedding_lr", "trainer.embedding_learning_rate"),
    only_off("embedding_lr_scale", "give the rate itself: trainer.embedding_learning_rate"),
    only_off("lr_groups", "trainer.embedding_learning_rate and lora.b_lr_ratio are what there is"),
    copied("adam_beta1", "trainer.beta1"),
    copied("adam_beta2", "trainer.beta2"),
    copied("adam_epsilon", "trainer.epsilon"),
    only_off("adam_beta3", only_came),
    only_off("adam_epsilon2", only_came),
    only_off("dion_*", only_came),
    copied("weight_decay", "trainer.weight_decay"),
    copied("max_grad_norm", "trainer.max_grad_norm"),
    converted("warmup_steps", "trainer.warmup_steps, trainer.warmup_ratio", import_warmup_steps),
    converted("warmup_ratio", "trainer.warmup_ratio", import_warmup_ratio),
    only_off("neftune_noise_alpha", "noise on embeddings is not built"),
    only_off("noisy_embedding_alpha", "noise on embeddings is not built"),
    converted("bf16", "model.dtype", bf16),
    converted("bfloat16", "model.dtype", import_bf16),
    flagged("fp16", "model.dtype", "f16"),
    flagged("float16", "model.dtype", "f16"),
    flagged("float32", "model.dtype", "f32"),
    copied("fp8", "trainer.fp8"),
    ignored("fp8_enable_fsdp_float8_all_gather", "weights are not gathered"),
    ignored("tf32", "matmuls run in model.dtype"),
    converted("gradient_checkpointing", "trainer.recompute", import_recompute),
    ignored("gradient_checkpointing_kwargs", "recomputing is exact here"),
    converted("activation_offloading", "trainer.offload_checkpoints", activation_offloading),
    ignored("flash_attention", own_kernels),
    ignored("flash_attn*", own_kernels),
    ignored("flash_optimum", own_kernels),
    ignored("sdp_attention", own_kernels),
    ignored("eager_attention", own_kernels),
    ignored("xformers_attention", own_kernels),
    ignored("flex_attention", own_kernels),
    ignored("flex_attn_compile_kwargs", own_kernels),
    only_off("s2_attention", "shifted sparse attention is not built"),
    ignored("attn_implementation", own_kernels),
    ignored("liger_*", own_kernels),
    ignored("cut_cross_entropy*", own_kernels),
    ignored("unsloth_*", own_kernels),
    ignored("torch_compile*", own_kernels),
    ignored("chunked_cross_entropy*", own_kernels),
    ignored("tiled_mlp*", own_kernels),
    ignored("deepcompile", own_kernels),
    converted("plugins", "", plugins),

    ignored("evals_per_epoch", "evaluation comes at the end and every trainer.eval_interval steps"),
    ignored("saves_per_epoch", "a checkpoint comes every trainer.save_interval steps and at the end, and the best one stays"),
    converted("eval_steps", "trainer.eval_interval", import_eval_steps),
    converted("save_steps", "trainer.save_interval", import_save_steps),
    converted("eval_strategy", "", import_eval_strategy),
    converted("evaluation_strategy", "", import_eval_strategy),
    converted("save_strategy", "trainer.save_interval", import_save_strategy),
    copied("save_total_limit", "trainer.max_checkpoints"),
    ignored("save_first_step", "the first checkpoint comes after trainer.save_interval steps"),
    ignored("save_safetensors", "always"),
    ignored("save_only_model", "a checkpoint can always be resumed from"),
    flagged("load_best_model_at_end", "trainer.keep_best", "true"),
    ignored("metric_for_best_model", "the validation loss decides"),
    ignored("greater_is_better", "the validation loss decides"),
    converted("logging_steps", "trainer.log_interval", import_logging_steps),
    ignored("include_tokens_per_second", "metrics.jsonl has them"),
    ignored("include_tkps", "metrics.jsonl has them"),
    ignored("eval_table_size", "monitor.sample_prompts shows text while training"),
    ignored("eval_max_new_tokens", "monitor.sample_tokens"),
    ignored("generate_samples", "monitor.sample_prompts shows text while training"),
    ignored("generation_*", "monitor.sample_tokens and monitor.sample_temperature"),
    only_off("do_causal_lm_eval", evaluation),
    only_off("eval_causal_lm_metrics", evaluation),
    only_off("do_bench_eval", evaluation),
    ignored("bench_*", "only read with do_bench_eval"),
    only_off("early_stopping_patience", "trainer.keep_best keeps the best checkpoint; training goes to its end"),
    noted("loss_watchdog_threshold", "a high loss does not end the run; one that is not finite does, trainer.max_skipped_steps"),
    ignored("loss_watchdog_patience", "only read with loss_watchdog_threshold"),
    ignored("gc_steps", "there is no garbage to collect"),
    copied("profiler_steps", "monitor.profile_steps"),
    ignored("profiler_steps_start", "after the first five steps"),
    converted("output_dir", "name, output", import_output),
    converted("resume_from_checkpoint", "checkpoint.resume", import_resume),
    flagged("auto_resume_from_checkpoints", "checkpoint.resume", "auto"),
    ignored("wandb_*", no_tracker),
    ignored("use_wandb", no_tracker),
    ignored("mlflow_*", no_tracker),
    ignored("hf_mlflow_log_artifacts", no_tracker),
    ignored("use_mlflow", no_tracker),
    ignored("comet_*", no_tracker),
    ignored("use_comet", no_tracker),
    ignored("use_otel_metrics", no_tracker),
    ignored("otel_*", no_tracker),
    ignored("use_trackio", no_tracker),
    ignored("trackio_*", no_tracker),
    ignored("use_swanlab", no_tracker),
    ignored("swanlab_*", no_tracker),
    ignored("gradio_*", "`lockstep chat` talks with the model"),
    flagged("use_tensorboard", "monitor.tensorboard", "true"),
    noted("hub_*", no_hub),
    noted("push_dataset_to_hub", no_hub),
    ignored("hf_use_auth_token", "nothing is downloaded"),

    only_off("deepspeed", no_sharding),
    only_off("fsdp*", no_sharding),
    only("sequence_parallel_degree", "1|off", one_gpu),
    only("context_parallel_size", "1|off", one_gpu),
    only("tensor_parallel_size", "1|off", one_gpu),
    only("dp_shard_size", "1|off", no_sharding),
    ignored("dp_replicate_size", "all GPUs hold the model"),
    ignored("heads_k_stride", "only read with context parallelism"),
    ignored("ring_attn_func", "only read with context parallelism"),
    converted("ddp_timeout", "parallel.timeout_s", import_timeout),
    copied("ddp_bucket_cap_mb", "parallel.bucket_cap_mb"),
    ignored("ddp_broadcast_buffers", "a decoder has no buffers"),
    copied("ddp_find_unused_parameters", "parallel.find_unused_parameters"),
    ignored("ddp", "always"),
    ignored("device", launcher),
    ignored("device_map", "every rank has its own device"),
    ignored("world_size", launcher),
    ignored("local_rank", launcher),
    only_off("max_memory", "every rank has its own device"),
    ignored("gpu_memory_limit", "trainer.recompute = auto goes by what is free"),
    ignored("low_cpu_mem_usage", "always"),
    ignored("accelerator_config", launcher),
    ignored("use_ray", launcher),
    ignored("ray_*", launcher),
    ignored("resources_per_worker", launcher),
    copied("dataloader_num_workers", "data.workers"),
    copied("dataloader_prefetch_factor", "data.prefetch"),
    copied("dataloader_pin_memory", "data.pin_memory"),
    ignored("dataloader_drop_last", "no sample is dropped; a short batch is filled with samples of weight 0"),
    ignored("remove_unused_columns", "other fields of a record are passed over"),
    copied("seed", "trainer.seed"),
    ignored("debug", "--headless and ranks/N.log say more"),
    ignored("axolotl_config_path", folder_says),
    ignored("is_preprocess", "data is tokenised before training"),
    ignored("preprocess_iterable", "data is tokenised before training"),
    ignored("total_*", "counted"),

    stops("rl", no_preferences),
    stops("reward_model", no_preferences),
    stops("process_reward_model", no_preferences),
    only_off("trl", no_preferences),
    only_off("vllm", no_preferences),
    only_off("num_labels", no_preferences),
    only_off("rl_beta", no_preferences),
    only_off("dpo_*", no_preferences),
    only_off("kto_*", no_preferences),
    only_off("orpo_alpha", no_preferences),
    only_off("rpo_alpha", no_preferences),
    only_off("cpo_alpha", no_preferences),
    only_off("simpo_gamma", no_preferences),
    ignored("max_prompt_len", "only read with rl"),
    stops("image_size", no_media),
    stops("image_resize_algorithm", no_media),
    only_off("llama4_linearized_experts", "mixture of experts is not built yet"),
});

constexpr std::array defaults = std::to_array<ImportDefault>({
    {"micro_batch_size", "trainer.batch_size", "1"},
    {"gradient_accumulation_steps", "trainer.gradient_accumulation", "1"},
    {"weight_decay", "trainer.weight_decay", "0"},
    {"adam_beta2", "trainer.beta2", "0.999"},
    {"cosine_min_lr_ratio", "trainer.min_lr_ratio", "0"},
    {"val_set_size", "data.validation_fraction", "0"},
    {"save_total_limit", "trainer.max_checkpoints", "4"},
});

// What Axolotl takes where a file is silent, if other keys do not say otherwise.
void fill_in(Importer& to) {
  if (!to.has("warmup_steps") && !to.has("warmup_ratio") && import_has_warmup(to)) {
    to.fill_in("warmup_ratio", "trainer.warmup_ratio", "0.03");
    to.fill_in("warmup_steps", "trainer.warmup_steps", "100");  // at most
  }
  const bool precise = to.on("fp16") || to.on("bfloat16") || to.on("float16") || to.on("float32");
  if (!precise) to.fill_in("bf16", "model.dtype", "bf16");
  fill_in_length(to, "sequence_len", 512);
  if (to.assigned("data.format") != "text") to.fill_in("excess_length_strategy", "data.too_long", "skip");
  if (!to.on("lora_target_linear")) fill_in_lora_targets(to, "lora_target_modules");
}

}  // namespace

const ImportProgram& axolotl() {
  static const ImportProgram program = {
      .name = "Axolotl",
      .word = "axolotl",
      .signs = {"base_model", "micro_batch_size", "datasets", "sequence_len", "val_set_size", "adapter", "num_epochs", "sample_packing",
                "pad_to_sequence_len", "lr_scheduler", "flash_attention", "dataset_prepared_path", "pretraining_dataset"},
      .rows = rows,
      .defaults = defaults,
      .fill_in = fill_in,
      .model_key = "base_model"};
  return program;
}

}  // namespace lockstep::config
