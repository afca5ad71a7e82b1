// The keys of LLaMA-Factory files. What they share with TrainingArguments is in that table.
#include "config/import/llama_factory.h"

#include <array>

#include "base/text.h"
#include "config/table/value.h"

namespace lockstep::config {
namespace {

void stage(Importer& to, const YAML::Node& value) {
  const std::string name = import_word(value);
  if (name == "sft" || name == "pt") return to.ignore("the format of the data says it");
  to.stop(no_preferences);
}

bool is_lora(const Importer& to) { return !to.has("finetuning_type") || to.text("finetuning_type") == "lora"; }

void finetuning_type(Importer& to, const YAML::Node& value) {
  const std::string name = import_word(value);
  if (name == "lora") return to.set("lora.enabled", "true");
  if (name == "full") return to.ignore("as without lora.enabled");
  to.refuse("there are lora and full; blocks are chosen with lora.layers_to_transform");
}

void factory_lora(Importer& to, const YAML::Node& value, std::string_view ours) {
  is_lora(to) ? to.set(ours, value) : to.ignore("only read with finetuning_type: lora");
}
void factory_rank(Importer& to, const YAML::Node& value) { factory_lora(to, value, "lora.rank"); }
void factory_alpha(Importer& to, const YAML::Node& value) { factory_lora(to, value, "lora.alpha"); }
void factory_dropout(Importer& to, const YAML::Node& value) { factory_lora(to, value, "lora.dropout"); }
void factory_targets(Importer& to, const YAML::Node& value) {
  is_lora(to) ? import_lora_targets(to, value) : to.ignore("only read with finetuning_type: lora");
}

void quantization_bit(Importer& to, const YAML::Node& value) {
  const std::string bits = import_text(value);
  if (bits == "4") return to.set("model.load_in_4bit", "true");
  if (bits == "8") return to.set("model.load_in_8bit", "true");
  to.refuse("there are 4 and 8");
}

void max_samples(Importer& to, const YAML::Node& value) {
  if (llama_factory_dataset_names(to.file()["dataset"]).size() > 1)
    return to.refuse("so many of each dataset; data.max_samples takes the first so many of all together");
  to.set("data.max_samples", value);
}

void cutoff_len(Importer& to, const YAML::Node& value) {
  import_length(to, value);
  if (to.text("stage") != "pt") to.note("a longer record loses its end here; there its prompts and answers are shortened alike");
}

void packing(Importer& to, const YAML::Node& value) {
  to.set("data.packing", value);
  if (to.on("packing") && !to.on("neat_packing")) to.note("records of a pack do not see each other here, as with neat_packing");
}

void pure_bf16(Importer& to, const YAML::Node& value) {
  if (import_is_off(value)) return to.ignore("off");
  to.set("model.dtype", "bf16");
  to.set("trainer.optimizer_states", "bf16");
}

void factory_template(Importer& to, const YAML::Node& value) { import_named_template(to, import_text(value)); }

void media(Importer& to, const YAML::Node&) { to.stop(no_media); }

constexpr std::string_view no_dpo = "only read with stage dpo, kto or ppo";
constexpr std::string_view inference = "only read when writing texts";
constexpr std::string_view exporting = "`lockstep merge` and `lockstep export` write folders";
constexpr std::string_view vocabulary = "the vocabulary stays as it is";
constexpr std::string_view ray_launcher = "lockstep starts the ranks";

constexpr std::array llama_factory_rows = std::to_array<ImportRow>({
    copied("adapter_name_or_path", "lora.adapters"),
    ignored("adapter_folder", "adapters are in the run folder"),
    converted("stage", "", stage),
    converted("finetuning_type", "lora.enabled", finetuning_type),
    converted("lora_rank", "lora.rank", factory_rank),
    converted("lora_alpha", "lora.alpha", factory_alpha),
    converted("lora_dropout", "lora.dropout", factory_dropout),
    converted("lora_target", "lora.target_modules", factory_targets),
    copied("additional_target", "lora.modules_to_save"),
    copied("use_rslora", "lora.rslora"),
    copied("use_dora", "lora.dora"),
    copied("loraplus_lr_ratio", "lora.b_lr_ratio"),
    ignored("loraplus_lr_embedding", "there are no adapters on embeddings"),
    only_off("pissa_init", "adapters start as PEFT's standard ones do"),
    ignored("pissa_*", "only read with pissa_init"),
    only_off("create_new_adapter", "lora.adapters folds all but the last and trains the last; fold it with `lockstep merge` for a new one"),
    converted("freeze_vision_tower", "", media),
    converted("freeze_multi_modal_projector", "", media),
    converted("freeze_language_model", "", media),
    ignored("freeze_*", "only read with finetuning_type: freeze"),
    ignored("oft_*", "only read with finetuning_type: oft"),
    ignored("module_dropout", "only read with finetuning_type: oft"),
    only_off("use_galore", "GaLore is not built"),
    ignored("galore_*", "only read with use_galore"),
    only_off("use_apollo", "Apollo is not built"),
    ignored("apollo_*", "only read with use_apollo"),
    only_off("use_badam", "BAdam is not built"),
    ignored("badam_*", "only read with use_badam"),
    only_off("use_llama_pro", "LLaMA Pro is not built"),
    only_off("use_adam_mini", "Adam-mini is not built"),
    only_off("use_mca", "Megatron is not built"),
    only_off("use_dft_loss", "the loss is plain cross-entropy"),
    only_off("use_asft_loss", "the loss is plain cross-entropy"),
    only_off("use_eaft_loss", "the loss is plain cross-entropy"),
    flagged("use_muon", "trainer.optimizer", "muon"),
    converted("quantization_bit", "model.load_in_4bit, model.load_in_8bit", quantization_bit),
    only("quantization_method", "bitsandbytes|bnb", "weights are quantized as bitsandbytes does"),
    converted("quantization_type", "", import_quant_type),
    copied("double_quantization", "model.double_quant"),
    ignored("quantization_device_map", "every rank has its own device"),
    ignored("upcast_layernorm", "norms are computed in f32"),
    ignored("upcast_lmhead_output", "the loss is computed in f32"),
    copied("fp8", "trainer.fp8"),
    ignored("fp8_*", "one way of FP8"),
    converted("dataset", "data.path, data.format", llama_factory_dataset),
    ignored("dataset_dir", "read with dataset"),
    ignored("media_dir", "texts only"),
    refused("eval_dataset", "give a file with --validation-data"),
    converted("template", "data.chat_template", factory_template),
    only("enable_thinking", "true",
         "the chat template of the model's folder decides; write one that does not think into a file and set "
         "data.chat_template"),
    only_off("tool_format", "the chat template of the model's folder writes tools"),
    copied("default_system", "data.system_prompt"),
    converted("cutoff_len", "data.seq_len", cutoff_len),
    converted("max_samples", "data.max_samples", max_samples),
    converted("train_on_prompt", "data.train_on", import_train_on_inputs),
    flagged("mask_history", "data.train_on", "last"),
    converted("packing", "data.packing", packing),
    flagged("neat_packing", "data.packing", "true"),
    converted("val_size", "data.validation_fraction", import_validation_size),
    ignored("eval_on_each_dataset", "validation is one set"),
    ignored("eval_num_beams", inference),
    only("ignore_pad_token_for_loss", "true", "padding is never trained"),
    ignored("streaming", "files are mapped, never read whole"),
    ignored("buffer_size", "the order is a permutation of all samples"),
    only("mix_strategy", "concat|off", "files are put together, one after the other"),
    only_off("interleave_probs", "files are put together, one after the other"),
    flagged("disable_shuffling", "data.shuffle", "false"),
    ignored("overwrite_cache", "a change of data or settings makes a new cache"),
    ignored("preprocessing_num_workers", "all cores tokenize"),
    ignored("preprocessing_batch_size", "all cores tokenize"),
    ignored("data_shared_file_system", "whoever comes first tokenizes"),
    copied("tokenized_path", "data.cache_dir"),
    ignored("flash_attn", own_kernels),
    ignored("enable_liger_kernel", own_kernels),
    ignored("use_unsloth*", own_kernels),
    ignored("use_v1_kernels", own_kernels),
    only_off("use_kt", "KTransformers are not built"),
    only_off("shift_attn", "shifted sparse attention is not built"),
    only_off("rope_scaling", "the model's config.json says it"),
    only_off("mixture_of_depths", "mixture of depths is not built"),
    only_off("moe_aux_loss_coef", "mixture of experts is not built yet"),
    only_off("train_from_scratch", "leave the model out to train a new one: docs/configuration.md, section model"),
    flagged("disable_gradient_checkpointing", "trainer.recompute", "none"),
    ignored("use_reentrant_gc", "recomputing is exact here"),
    converted("pure_bf16", "model.dtype, trainer.optimizer_states", pure_bf16),
    ignored("low_cpu_mem_usage", "always"),
    ignored("plot_loss", "metrics.jsonl holds the losses"),
    ignored("include_effective_tokens_per_second", "metrics.jsonl counts tokens"),
    ignored("compute_accuracy", "evaluation says it"),
    only_off("early_stopping_steps", "trainer.keep_best keeps the best checkpoint; training goes to its end"),
    only_off("resize_vocab", vocabulary),
    only_off("add_tokens", vocabulary),
    only_off("add_special_tokens", vocabulary),
    only_off("new_special_tokens*", vocabulary),
    ignored("init_special_tokens", vocabulary),
    only_off("split_special_tokens", "special tokens are one token each"),
    ignored("print_param_status", "`lockstep train` says what is trained"),
    ignored("hf_hub_token", "nothing is downloaded"),
    ignored("ms_hub_token", "nothing is downloaded"),
    ignored("om_hub_token", "nothing is downloaded"),
    ignored("pref_*", no_dpo),
    ignored("dpo_*", no_dpo),
    ignored("kto_*", no_dpo),
    ignored("ppo_*", no_dpo),
    ignored("simpo_gamma", no_dpo),
    ignored("ld_alpha", no_dpo),
    only_off("ref_model*", no_preferences),
    stops("reward_model", no_preferences),
    ignored("reward_model_*", no_dpo),
    ignored("use_swanlab", no_tracker),
    ignored("swanlab_*", no_tracker),
    ignored("ray_*", ray_launcher),
    ignored("resources_per_worker", ray_launcher),
    ignored("placement_strategy", ray_launcher),
    converted("image_*", "", media),
    converted("video_*", "", media),
    converted("audio_*", "", media),
    converted("crop_to_patches", "", media),
    converted("use_audio_in_video", "", media),
    ignored("export_*", exporting),
    ignored("infer_*", inference),
    ignored("vllm_*", inference),
    ignored("sglang_*", inference),
    ignored("offload_folder", inference),
    ignored("use_kv_cache", inference),
    ignored("do_sample", inference),
    ignored("temperature", inference),
    ignored("top_p", inference),
    ignored("top_k", inference),
    ignored("num_beams", inference),
    ignored("max_length", inference),
    ignored("max_new_tokens", inference),
    ignored("repetition_penalty", inference),
    ignored("length_penalty", inference),
    ignored("skip_special_tokens", inference),
    ignored("profil*", "monitor.profile_steps traces steps"),
});

constexpr std::array llama_factory_defaults = std::to_array<ImportDefault>({
    {"val_size", "data.validation_fraction", "0"},
    {"gradient_checkpointing", "trainer.recompute", "blocks"},
});

void fill_in_llama_factory(Importer& to) {
  if (!to.has("dataset")) {
    to.enter("dataset", YAML::Node(""));
    to.refuse("the file names none: give one with --data FILE");
  }
  to.fill_in("finetuning_type", "lora.enabled", "true");
  if (to.text("stage") == "pt") to.fill_in("packing", "data.packing", "true");
  if (to.assigned("lora.enabled") == "true") to.fill_in("lora_rank", "lora.rank", "8");
  hugging_face().fill_in(to);
}

}  // namespace

const ImportProgram& llama_factory() {
  static const std::vector<ImportRow> rows = followed_by(llama_factory_rows, hugging_face().rows);
  static const std::vector<ImportDefault> defaults = followed_by(llama_factory_defaults, hugging_face().defaults);
  static const ImportProgram program = {.name = "LLaMA-Factory",
                                        .word = "llama-factory",
                                        .signs = {"finetuning_type", "cutoff_len", "stage", "template", "lora_rank", "lora_target",
                                                  "dataset_dir", "quantization_bit", "overwrite_cache", "dataset", "infer_backend"},
                                        .rows = rows,
                                        .defaults = defaults,
                                        .fill_in = fill_in_llama_factory,
                                        .model_key = "model_name_or_path"};
  return program;
}

}  // namespace lockstep::config
