// The keys of TRL's scripts and of the alignment handbook, beside those of TrainingArguments.
#include <array>

#include "base/text.h"
#include "config/import/table.h"
#include "config/table/value.h"

namespace lockstep::config {
namespace {

void trl_bits(Importer& to, const YAML::Node& value, std::string_view ours) {
  if (!read_boolean(import_text(value)).value_or(false)) return to.ignore("off");
  to.on("use_peft") ? to.set(ours, "true") : to.refuse("quantized weights are frozen: train an adapter, use_peft: true");
}
void four_bits(Importer& to, const YAML::Node& value) { trl_bits(to, value, "model.load_in_4bit"); }
void eight_bits(Importer& to, const YAML::Node& value) { trl_bits(to, value, "model.load_in_8bit"); }

// Keys of adapters stand in files that do not use them.
void trl_lora(Importer& to, const YAML::Node& value, std::string_view ours) {
  to.on("use_peft") ? to.set(ours, value) : to.ignore("only read with use_peft");
}
void trl_rank(Importer& to, const YAML::Node& value) { trl_lora(to, value, "lora.rank"); }
void trl_alpha(Importer& to, const YAML::Node& value) { trl_lora(to, value, "lora.alpha"); }
void trl_dropout(Importer& to, const YAML::Node& value) { trl_lora(to, value, "lora.dropout"); }
void modules_to_save(Importer& to, const YAML::Node& value) { trl_lora(to, value, "lora.modules_to_save"); }
void rslora(Importer& to, const YAML::Node& value) { trl_lora(to, value, "lora.rslora"); }
void dora(Importer& to, const YAML::Node& value) { trl_lora(to, value, "lora.dora"); }
void trl_targets(Importer& to, const YAML::Node& value) {
  to.on("use_peft") ? import_lora_targets(to, value) : to.ignore("only read with use_peft");
}

void nested_quant(Importer& to, const YAML::Node& value) {
  to.on("load_in_4bit") ? to.set("model.double_quant", value) : to.ignore("only read with load_in_4bit");
}

void assistant_only(Importer& to, const YAML::Node& value) {
  const auto yes = value.IsScalar() ? read_boolean(value.Scalar()) : std::nullopt;
  if (!yes) return to.refuse("must be true or false");
  *yes ? to.set("data.train_on", "responses") : to.ignore("data.train_on says it");
}

void completion_only(Importer& to, const YAML::Node& value) {
  const auto yes = value.IsScalar() ? read_boolean(value.Scalar()) : std::nullopt;
  if (!yes) return to.refuse("must be true or false");
  to.set("data.train_on", *yes ? "responses" : to.on("assistant_only_loss") ? "responses" : "all");
}

void packing_strategy(Importer& to, const YAML::Node& value) {
  const std::string name = import_word(value);
  if (!to.on("packing")) return to.ignore("only read with packing");
  if (name == "bfd" || name == "ffd")
    return to.note("records are put into rows by first fit; which share one differs, and none sees another");
  to.refuse("rows are filled with whole records; longer ones are cut (data.too_long)");
}

void truncation(Importer& to, const YAML::Node& value) {
  const std::string name = import_word(value);
  if (name == "keep_start") return to.set("data.too_long", "cut");
  if (name == "keep_end") return to.set("data.too_long", "cut_start");
  to.refuse("there are keep_start and keep_end");
}

// One set without a weight is a file; mixtures are made before training.
void mixture(Importer& to, const YAML::Node&) {
  to.refuse("datasets on the Hub, mixed while loading: fetch them, mix them into one file as JSONL and give it with --data FILE");
}

void loss_type(Importer& to, const YAML::Node& value) {
  const std::string name = import_word(value);
  if (name == "nll" || name == "chunked_nll") return to.ignore("as here");
  if (name == "dft") return to.refuse("the loss is plain cross-entropy");
  to.stop(no_preferences);
}

void eval_strategy(Importer& to, const YAML::Node& value) {
  if (import_word(value) == "no") return to.ignore("without validation data there is no evaluation");
  to.note("the test split: give it as a file with --validation-data; evaluation comes every trainer.eval_interval steps and at the end");
}

void eos_token(Importer& to, const YAML::Node&) {
  to.refuse("the tokenizer's own is used; change it in tokenizer_config.json of the model's folder");
}

// TRL computes in bf16 unless told otherwise, whatever the weights are loaded as.
bool bf16_is_off(const Importer& to) { return to.on("fp16") || (to.has("bf16") && !to.on("bf16")); }

void dtype(Importer& to, const YAML::Node& value) {
  const std::string name = import_word(value);
  if (name == "auto") return to.ignore("the model's folder says it");
  if (name == "float32" && !bf16_is_off(to)) return to.ignore("bf16 says what is computed in; updates are in f32");
  to.set("model.dtype", name);
}

constexpr std::string_view own_split = "a file is read whole";

constexpr std::array trl_rows = std::to_array<ImportRow>({
    ignored("base_model_revision", "a folder is what it is"),
    ignored("model_code_revision", "a folder is what it is"),
    converted("torch_dtype", "model.dtype", dtype),
    converted("dtype", "model.dtype", dtype),
    only_off("model_init_kwargs", "the model's folder says it"),
    converted("dataset_name", "data.path", import_data_path),
    only_off("dataset_config", "a part of a dataset on the Hub; fetch that part as JSONL"),
    only_off("dataset_config_name", "a part of a dataset on the Hub; fetch that part as JSONL"),
    ignored("dataset_train_split", own_split),
    ignored("dataset_test_split", "give it as a file with --validation-data"),
    ignored("dataset_streaming", "files are mapped, never read whole"),
    converted("dataset_mixer", "", mixture),
    converted("dataset_mixture", "", mixture),
    ignored("dataset_splits", own_split),
    ignored("dataset_configs", own_split),
    converted("datasets", "", mixture),
    ignored("columns_to_keep", "other fields of a record are passed over"),
    ignored("preprocessing_num_workers", "all cores tokenize"),
    ignored("dataset_num_proc", "all cores tokenize"),
    ignored("dataset_batch_size", "all cores tokenize"),
    ignored("dataset_kwargs", "records are tokenized as their format says"),
    copied("dataset_text_field", "data.text_field"),
    copied("text_column", "data.text_field"),
    converted("max_seq_length", "data.seq_len", import_length),
    converted("max_length", "data.seq_len", import_length),
    converted("truncation_mode", "data.too_long", truncation),
    only("truncation_side", "right", "data.too_long = cut_start cuts the start"),
    copied("packing", "data.packing"),
    converted("packing_strategy", "", packing_strategy),
    ignored("eval_packing", "validation is packed as training is"),
    ignored("padding_free", "padding changes no number"),
    ignored("pad_to_multiple_of", "padding changes no number"),
    ignored("pad_token", "padding is neither seen nor trained"),
    converted("eos_token", "", eos_token),
    ignored("shuffle_dataset", "samples are shuffled, data.shuffle"),
    ignored("num_of_sequences", "records are read one by one"),
    ignored("chars_per_token", "records are read one by one"),
    converted("chat_template", "data.chat_template", import_template),
    converted("chat_template_path", "data.chat_template", import_template),
    only_off("chat_template_kwargs", "write what they choose into a template of your own and set data.chat_template"),
    only_off("auto_insert_empty_system_msg", "set data.system_prompt, or a template that writes it"),
    converted("assistant_only_loss", "data.train_on", assistant_only),
    converted("completion_only_loss", "data.train_on", completion_only),
    converted("loss_type", "", loss_type),
    flagged("activation_offloading", "trainer.offload_checkpoints", "true"),
    flagged("use_peft", "lora.enabled", "true"),
    converted("lora_r", "lora.rank", trl_rank),
    converted("lora_alpha", "lora.alpha", trl_alpha),
    converted("lora_dropout", "lora.dropout", trl_dropout),
    converted("lora_target_modules", "lora.target_modules", trl_targets),
    only_off("lora_target_parameters", "adapters are on matrices of attention and feed-forward"),
    converted("lora_modules_to_save", "lora.modules_to_save", modules_to_save),
    only("lora_task_type", "causal_lm", "language models only"),
    converted("use_rslora", "lora.rslora", rslora),
    converted("use_dora", "lora.dora", dora),
    // The rest of PEFT's LoraConfig, by its own names, as lockstep.SFTTrainer(peft_config=...) hands them on.
    only("bias", "none|off", "adapters have no biases"),
    only_off("lora_bias", "adapters have no biases"),
    ignored("peft_version", "adapters are written as PEFT reads them"),
    copied("layers_to_transform", "lora.layers_to_transform"),
    only("layers_pattern", "layers|[layers]|off", "blocks are called layers"),
    only("init_lora_weights", "true", "adapters begin with B = 0"),
    only_off("loftq_config", "adapters begin with B = 0"),
    only_off("eva_config", "adapters begin with B = 0"),
    only_off("corda_config", "adapters begin with B = 0"),
    only_off("exclude_modules", "name those that have an adapter: lora.target_modules"),
    only_off("rank_pattern", "all adapters have one rank, lora.rank"),
    only_off("alpha_pattern", "all adapters have one alpha, lora.alpha"),
    only_off("fan_in_fan_out", "matrices are [out, in] here"),
    only_off("trainable_token_indices", "lora.modules_to_save trains embeddings whole"),
    only_off("layer_replication", "a model has the layers of its folder"),
    only_off("use_qalora", "weights are held in model.dtype, NF4 or int8"),
    ignored("qalora_group_size", "only read with use_qalora"),
    only_off("arrow_config", "routing between adapters is not built"),
    only_off("alora_invocation_tokens", "adapters act on every token"),
    only_off("megatron_config", "a model is cut by parallel.shard alone"),
    ignored("megatron_core", "only read with megatron_config"),
    only("peft_type", "lora", "adapters are LoRA"),
    only_off("inference_mode", "an adapter that is trained is not frozen"),
    ignored("base_model_name_or_path", "the model's folder says it"),
    ignored("revision", "nothing is downloaded"),
    ignored("auto_mapping", "the model's config.json says it"),
    ignored("runtime_config", "memory is planned: `lockstep plan`"),
    ignored("ensure_weight_tying", "tied weights stay tied"),
    converted("load_in_4bit", "model.load_in_4bit", four_bits),
    converted("load_in_8bit", "model.load_in_8bit", eight_bits),
    converted("bnb_4bit_quant_type", "", import_quant_type),
    ignored("bnb_4bit_quant_storage", "weights are stored as bytes"),
    ignored("bnb_4bit_compute_dtype", "matmuls run in model.dtype"),
    converted("use_bnb_nested_quant", "model.double_quant", nested_quant),
    converted("eval_strategy", "", eval_strategy),
    converted("evaluation_strategy", "", eval_strategy),
    ignored("config", "the file itself"),
    noted("env", "set environment variables where the command is started"),
    ignored("gradient_checkpointing_use_reentrant", "recomputing is exact here"),
    ignored("system_prompt_*", "set data.system_prompt"),
    noted("benchmarks", "benchmarks are not run"),
    noted("callbacks", "there are no callbacks"),
    only_off("ignore_bias_buffers", no_preferences),
    stops("beta", no_preferences),
    stops("max_prompt_length", no_preferences),
    stops("max_completion_length", no_preferences),
    stops("max_target_length", no_preferences),
    stops("ref_model*", no_preferences),
    stops("reference_free", no_preferences),
    stops("precompute_ref_log_probs", no_preferences),
    stops("desirable_weight", no_preferences),
    stops("undesirable_weight", no_preferences),
    stops("num_generations", no_preferences),
    stops("reward_*", no_preferences),
    stops("sft_model_path", no_preferences),
    stops("kl_coef", no_preferences),
    stops("cliprange", no_preferences),
    stops("missing_eos_penalty", no_preferences),
    stops("center_rewards_coefficient", no_preferences),
    stops("use_vllm", no_preferences),
    stops("rpo_alpha", no_preferences),
    stops("simpo_gamma", no_preferences),
    stops("cpo_alpha", no_preferences),
    stops("teacher_model_name_or_path", "distillation is not built"),
    stops("image_resize_size", no_media),
});

constexpr std::array trl_defaults = std::to_array<ImportDefault>({
    {"learning_rate", "trainer.learning_rate", "2e-5"},
    {"truncation_mode", "data.too_long", "cut"},
});

void fill_in_trl(Importer& to) {
  hugging_face().fill_in(to);
  fill_in_length(to, "max_length", 1024);
  if (!bf16_is_off(to)) to.fill_in("bf16", "model.dtype", "bf16");
  if (!to.on("fp16")) to.fill_in("dtype", "model.dtype", "f32");
  to.fill_in("completion_only_loss", "data.train_on", "whole_chats");
  if (!to.on("use_peft")) return;
  to.fill_in("lora_r", "lora.rank", "16");
  to.fill_in("lora_alpha", "lora.alpha", "32");
  to.fill_in("lora_dropout", "lora.dropout", "0.05");
  fill_in_lora_targets(to, "lora_target_modules");
  if (to.on("load_in_4bit")) to.fill_in("use_bnb_nested_quant", "model.double_quant", "false");
}

}  // namespace

const ImportProgram& trl() {
  static const std::vector<ImportRow> rows = followed_by(trl_rows, hugging_face().rows);
  static const std::vector<ImportDefault> defaults = followed_by(trl_defaults, hugging_face().defaults);
  static const ImportProgram program = {
      .name = "TRL",
      .word = "trl",
      .signs = {"dataset_name", "dataset_mixer", "dataset_mixture", "use_peft", "max_seq_length", "max_length", "dataset_text_field",
                "dataset_num_proc", "assistant_only_loss", "completion_only_loss", "packing_strategy", "beta", "loss_type",
                "max_prompt_length", "max_completion_length", "num_generations", "lora_target_modules", "chat_template", "use_vllm"},
      .rows = rows,
      .defaults = defaults,
      .fill_in = fill_in_trl,
      .model_key = "model_name_or_path"};
  return program;
}

}  // namespace lockstep::config
