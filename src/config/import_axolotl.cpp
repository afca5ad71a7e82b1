// The keys of Axolotl files.
#include <array>

#include "base/text.h"
#include "config/import_table.h"
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

void target_linear(Importer& to, const YAML::Node& value) {
  if (!to.on("lora_target_linear")) return to.ignore("off");
  to.set("lora.target_modules", "[all-linear]");
}

void target_modules(Importer& to, const YAML::Node& value) {
  if (to.on("lora_target_linear")) return to.ignore("lora_target_linear takes all of them");
  import_lora_targets(to, value);
}

std::string format_of(const std::string& type) {
  const std::string start = type.substr(0, type.find_first_of(".:_"));
  if (start == "alpaca") return "alpaca";
  if (start == "sharegpt") return "sharegpt";
  if (type == "chat_template" || type.starts_with("chat_template.")) return "messages";
  if (type == "completion") return "text";
  return "";
}

void dataset_key(Importer& to, const std::string& key, const YAML::Node& value, const YAML::Node& dataset) {
  const std::string text = value.IsScalar() ? value.Scalar() : "";
  if (key == "type") {
    const std::string format = value.IsScalar() ? format_of(text) : "";
    if (format.empty())
      return to.refuse(
          "records are messages, sharegpt, alpaca, prompt and completion, or text (docs/data.md); bring them into one of these");
    return to.set("data.format", format == "messages" ? "auto" : format);  // chat_template reads from/value lists too
  }
  if (key == "field_messages") return to.set("data.messages_field", value);
  if (key == "field") return to.set("data.text_field", value);
  if (key == "split")
    return text == "train" ? to.ignore("a file is read whole")
                           : to.refuse("a file is read whole; data.max_samples takes the first so many");
  if (key == "ds_type") return to.ignore("told by the file's name");
  if (key == "name") return to.refuse("a part of a dataset on the Hub; fetch that part as JSONL");
  if (key == "data_files") return to.refuse("give the files with --data, several with commas between");
  if (key == "shards" || key == "shards_idx") return to.refuse("data.max_samples takes the first so many records");
  if (key == "roles_to_train")
    return import_text(value) == "[assistant]" || import_text(value) == "[gpt]"
               ? to.ignore("as here")
               : to.refuse("what assistants say is trained, or all: data.train_on");
  if (key == "train_on_eos") return text == "turn" ? to.ignore("as here") : to.refuse("the token that ends a turn is always trained");
  if (key == "conversation" || key == "roles") return to.ignore("the usual role names are known");
  if (key == "message_property_mappings" || key.starts_with("message_field_")) {
    const std::string mapped = import_text(value);
    const bool usual = mapped == "role" || mapped == "content" || mapped == "from" || mapped == "value" || value.IsMap();
    return usual ? to.ignore("role/content and from/value are told apart by themselves")
                 : to.refuse("messages have role and content, or from and value");
  }
  if (key == "chat_template")
    return text == "tokenizer_default" ? to.ignore("as here") : to.refuse("give it as a file: data.chat_template");
  to.refuse("not a key of datasets this command knows");
}

void datasets(Importer& to, const YAML::Node& value) {
  if (!value.IsSequence() || value.size() == 0) return to.refuse("must be a list of datasets");
  for (std::size_t i = 0; i < value.size(); ++i) {
    const std::string place = fmt::format("datasets[{}]", i);
    const YAML::Node dataset = value[i];
    to.enter(place, dataset);
    if (!dataset.IsMap() || !dataset["path"]) {
      to.refuse("has no path");
      continue;
    }
    if (i > 0) {
      to.refuse("one set of records is read: put files of one format together, --data one.jsonl,two.jsonl");
      continue;
    }
    for (const auto& item : dataset) {
      const std::string key = item.first.Scalar();
      to.enter(place + "." + key, item.second);
      if (item.second.IsNull())
        to.ignore("empty");
      else if (key == "path")
        import_data_path(to, item.second);
      else
        dataset_key(to, key, item.second, dataset);
    }
  }
}

void chat_template(Importer& to, const YAML::Node& value) {
  const std::string name = value.IsScalar() ? value.Scalar() : "";
  if (name == "chatml" || name == "alpaca" || name == "jinja")
    return to.refuse("the template of the model's folder is used; write another into a file and set data.chat_template");
  to.ignore("the template of the model's folder is used");
}

void special_tokens(Importer& to, const YAML::Node& value) {
  if (!value.IsMap()) return to.refuse("must be a map");
  for (const auto& item : value) {
    to.enter("special_tokens." + item.first.Scalar(), item.second);
    if (item.first.Scalar() == "pad_token")
      to.ignore("padding is neither seen nor trained");
    else
      to.refuse("the tokenizer's own are used; change them in tokenizer_config.json of the model's folder");
  }
}

void length(Importer& to, const YAML::Node& value) {
  to.set("data.seq_len", value);
  if (!to.has("adapter") && !std::filesystem::is_directory(to.text("base_model"))) to.set("model.max_seq_len", value);
}

constexpr std::string_view own_kernels = "Lockstep's own fused kernels are always on";
constexpr std::string_view no_tracker = "every run writes metrics.jsonl; monitor.tensorboard writes TensorBoard files";
constexpr std::string_view no_sharding =
    "every GPU holds the whole model; where memory is short see docs/finetuning.md, What to try when memory is full";
constexpr std::string_view no_preferences = "only supervised training is built";

constexpr std::array rows = std::to_array<ImportRow>({
    converted("base_model", import_model),
    ignored("base_model_config", "the model's folder has its config.json"),
    ignored("model_type", "told by config.json"),
    ignored("tokenizer_type", "told by tokenizer.json"),
    only_off("trust_remote_code", "code of a model is never run; the families in docs/finetuning.md are built in"),
    copied("tokenizer_config", "data.tokenizer"),
    ignored("tokenizer_use_fast", "there is one kind"),
    ignored("tokenizer_legacy", "tokenizer.json says it"),
    ignored("is_llama_derived_model", "told by config.json"),
    ignored("is_mistral_derived_model", "told by config.json"),
    ignored("is_qwen_derived_model", "told by config.json"),
    converted("load_in_4bit", four_bits),
    converted("load_in_8bit", eight_bits),
    ignored("strict", "every key is looked at"),
    converted("datasets", datasets),
    refused("pretraining_dataset", "give a file of text or tokens with --data"),
    refused("test_datasets", "give a file with --validation-data"),
    copied("dataset_prepared_path", "data.cache_dir"),
    ignored("dataset_processes", "all cores tokenise"),
    ignored("dataset_keep_in_memory", "files are mapped"),
    ignored("shuffle_merged_datasets", "samples are shuffled, data.shuffle"),
    ignored("dataset_exact_deduplication", "`lockstep data inspect` counts duplicates"),
    ignored("skip_prepare_dataset", "data is tokenised once and cached"),
    converted("val_set_size", import_validation_size),
    converted("sequence_len", length),
    copied("sample_packing", "data.packing"),
    ignored("eval_sample_packing", "validation is packed as training is"),
    ignored("sample_packing_eff_est", "counted, not estimated"),
    ignored("sample_packing_group_size", "packing looks at all records"),
    ignored("sample_packing_bin_size", "packing looks at all records"),
    ignored("pad_to_sequence_len", "a batch is as long as its longest record; padding changes no number"),
    ignored("group_by_length", "packing does more"),
    only_off("multipack_real_batches", "leave it out"),
    converted("adapter", adapter),
    copied("lora_model_dir", "lora.adapters"),
    copied("lora_r", "lora.rank"),
    copied("lora_alpha", "lora.alpha"),
    copied("lora_dropout", "lora.dropout"),
    converted("lora_target_linear", target_linear),
    converted("lora_target_modules", target_modules),
    copied("lora_modules_to_save", "lora.modules_to_save"),
    copied("peft_layers_to_transform", "lora.layers_to_transform"),
    copied("peft_use_dora", "lora.dora"),
    copied("peft_use_rslora", "lora.rslora"),
    copied("loraplus_lr_ratio", "lora.b_lr_ratio"),
    copied("loraplus_lr_embedding", "trainer.embedding_learning_rate"),
    copied("embedding_lr", "trainer.embedding_learning_rate"),
    only_off("lora_fan_in_fan_out", "matrices are [out, in] here"),
    ignored("lora_on_cpu", "memory is used piece by piece"),
    ignored("lora_mlp_kernel", own_kernels),
    ignored("lora_qkv_kernel", own_kernels),
    ignored("lora_o_kernel", own_kernels),
    only_off("peft*", "initialisations other than PEFT's standard one are not built"),
    only_off("relora*", "ReLoRA is not built"),
    only_off("unfrozen_parameters", "choose lora.modules_to_save and lora.layers_to_transform"),
    copied("micro_batch_size", "trainer.batch_size"),
    copied("gradient_accumulation_steps", "trainer.gradient_accumulation"),
    only_off("batch_size", "say micro_batch_size and gradient_accumulation_steps"),
    ignored("eval_batch_size", "evaluation uses trainer.batch_size"),
    copied("num_epochs", "trainer.num_epochs"),
    converted("max_steps", import_max_steps),
    converted("optimizer", import_optimizer),
    only_off("optim_args", "say them in the section trainer"),
    only_off("optim_target_modules", "GaLore is not built"),
    converted("lr_scheduler", import_schedule),
    only_off("lr_scheduler_kwargs", "say them in the section trainer: min_lr_ratio, decay_fraction"),
    copied("cosine_min_lr_ratio", "trainer.min_lr_ratio"),
    only_off("cosine_constant_lr_ratio", "trainer.lr_schedule = wsd holds the rate before it decays"),
    copied("learning_rate", "trainer.learning_rate"),
    only_off("lr_groups", "trainer.embedding_learning_rate and lora.b_lr_ratio are what there is"),
    copied("adam_beta1", "trainer.beta1"),
    copied("adam_beta2", "trainer.beta2"),
    copied("adam_epsilon", "trainer.epsilon"),
    copied("weight_decay", "trainer.weight_decay"),
    copied("max_grad_norm", "trainer.max_grad_norm"),
    copied("warmup_steps", "trainer.warmup_steps"),
    converted("warmup_ratio", import_warmup_ratio),
    converted("train_on_inputs", import_train_on_inputs),
    converted("bf16", import_bf16),
    converted("bfloat16", import_bf16),
    flagged("fp16", "model.dtype", "f16"),
    flagged("float16", "model.dtype", "f16"),
    ignored("tf32", "matmuls run in model.dtype"),
    ignored("bnb_config_kwargs", "NF4 with double quantisation; model.double_quant"),
    converted("gradient_checkpointing", import_recompute),
    ignored("gradient_checkpointing_kwargs", "recomputing is exact here"),
    flagged("activation_offloading", "trainer.offload_checkpoints", "true"),
    ignored("flash_attention", own_kernels),
    ignored("flash_attn*", own_kernels),
    ignored("sdp_attention", own_kernels),
    ignored("eager_attention", own_kernels),
    ignored("xformers_attention", own_kernels),
    ignored("flex_attention", own_kernels),
    ignored("s2_attention", own_kernels),
    ignored("attn_implementation", own_kernels),
    ignored("liger_*", own_kernels),
    ignored("cut_cross_entropy", own_kernels),
    ignored("unsloth_*", own_kernels),
    ignored("torch_compile*", own_kernels),
    ignored("chunked_cross_entropy", own_kernels),
    only_off("plugins", "what plugins of Axolotl do is built in or not there; leave them out"),
    converted("chat_template", chat_template),
    only_off("chat_template_jinja", "write it into a file and set data.chat_template"),
    copied("default_system_message", "data.system_prompt"),
    converted("special_tokens", special_tokens),
    only_off("tokens", "the vocabulary stays as it is; add tokens to the model's folder first"),
    only_off("added_tokens_overrides", "change the tokenizer in the model's folder"),
    ignored("resize_token_embeddings_to_32x", "the shape of the model's folder is kept"),
    only_off("rope_scaling", "the model's config.json says it"),
    only_off("overrides_of_model_config", "change config.json in the model's folder"),
    only_off("neftune_noise_alpha", "noise on embeddings is not built"),
    ignored("evals_per_epoch", "evaluation comes at the end and every trainer.eval_interval steps"),
    ignored("saves_per_epoch", "a checkpoint comes every trainer.save_interval steps and at the end, and the best one stays"),
    converted("eval_steps", import_eval_steps),
    converted("save_steps", import_save_steps),
    converted("eval_strategy", import_eval_strategy),
    converted("evaluation_strategy", import_eval_strategy),
    converted("save_strategy", import_save_strategy),
    copied("save_total_limit", "trainer.max_checkpoints"),
    ignored("save_safetensors", "always"),
    ignored("save_only_model", "a checkpoint can always be resumed from"),
    flagged("load_best_model_at_end", "trainer.keep_best", "true"),
    converted("logging_steps", import_logging_steps),
    ignored("eval_table_size", "monitor.sample_prompts shows text while training"),
    ignored("eval_max_new_tokens", "monitor.sample_tokens"),
    only_off("eval_causal_lm_metrics", "evaluation says loss, perplexity and accuracy"),
    only_off("do_bench_eval", "evaluation says loss, perplexity and accuracy"),
    only_off("early_stopping_patience", "trainer.keep_best keeps the best checkpoint; training goes to its end"),
    converted("output_dir", import_output),
    converted("resume_from_checkpoint", import_resume),
    ignored("auto_resume_from_checkpoints", "--resume auto"),
    ignored("local_rank", "the launcher numbers ranks"),
    ignored("wandb_*", no_tracker),
    ignored("use_wandb", no_tracker),
    ignored("mlflow_*", no_tracker),
    ignored("use_mlflow", no_tracker),
    ignored("comet_*", no_tracker),
    ignored("use_comet", no_tracker),
    flagged("use_tensorboard", "monitor.tensorboard", "true"),
    only_off("hub_*", "`lockstep merge` and the adapter folder give what can be pushed"),
    ignored("hf_use_auth_token", "nothing is downloaded"),
    only_off("push_dataset_to_hub", "nothing is uploaded"),
    only_off("deepspeed", no_sharding),
    only_off("fsdp*", no_sharding),
    only_off("sequence_parallel*", "one sequence is on one GPU"),
    only_off("context_parallel*", "one sequence is on one GPU"),
    only_off("tensor_parallel*", "one model is on one GPU"),
    copied("ddp_timeout", "parallel.timeout_s"),
    copied("ddp_bucket_cap_mb", "parallel.bucket_cap_mb"),
    ignored("ddp_broadcast_buffers", "a decoder has no buffers"),
    copied("ddp_find_unused_parameters", "parallel.find_unused_parameters"),
    only_off("device_map", "every rank has its own device"),
    only_off("max_memory", "every rank has its own device"),
    ignored("gpu_memory_limit", "trainer.recompute = auto goes by what is free"),
    copied("dataloader_num_workers", "data.workers"),
    copied("dataloader_prefetch_factor", "data.prefetch"),
    copied("dataloader_pin_memory", "data.pin_memory"),
    copied("seed", "trainer.seed"),
    copied("auto_find_batch_size", "trainer.auto_find_batch_size"),
    only_off("rl", no_preferences),
    only_off("reward_model", no_preferences),
    only_off("process_reward_model", no_preferences),
    only_off("trl", no_preferences),
    ignored("debug", "--headless and ranks/N.log say more"),
    only_off("torchdistx_path", "leave it out"),
    ignored("ddp", "always"),
    ignored("low_cpu_mem_usage", "always"),
});

// What Axolotl (through transformers) takes where a file is silent.
constexpr std::array defaults = std::to_array<ImportDefault>({
    {"weight_decay", "trainer.weight_decay", "0"},
    {"adam_beta2", "trainer.beta2", "0.999"},
    {"cosine_min_lr_ratio", "trainer.min_lr_ratio", "0"},
    {"val_set_size", "data.validation_fraction", "0"},
});

}  // namespace

const ImportProgram& axolotl() {
  static const ImportProgram program = {
      "Axolotl", "axolotl", {"base_model", "micro_batch_size", "datasets", "sequence_len", "val_set_size", "adapter"}, rows, defaults};
  return program;
}

}  // namespace lockstep::config
