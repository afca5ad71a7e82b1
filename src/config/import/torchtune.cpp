// The keys of torchtune's recipes: parts in maps, each with the class that it is made of.
#include <array>

#include "base/text.h"
#include "config/import/table.h"
#include "config/table/value.h"

namespace lockstep::config {
namespace {

// "torchtune.models.llama3_1.lora_llama3_1_8b" -> "lora_llama3_1_8b"
std::string component_of(const YAML::Node& part) {
  const std::string name = part && part.IsMap() ? scalar(part["_component_"]) : "";
  return name.substr(name.rfind('.') + 1);
}

// "${output_dir}/logs" with what the file says for output_dir.
std::string resolved(const Importer& to, std::string text) {
  for (std::size_t at = text.find("${"); at != text.npos; at = text.find("${")) {
    const std::size_t end = text.find('}', at);
    const std::string value = end == text.npos ? "" : to.text(text.substr(at + 2, end - at - 2));
    if (end == text.npos || value.empty() || value.find("${") != value.npos) return text;
    text.replace(at, end - at + 1, value);
  }
  return text;
}

void torchtune_model_class(Importer& to, const YAML::Node&) {
  const std::string name = component_of(to.file()["model"]);
  if (name.find("vision") != name.npos || name.find("flamingo") != name.npos || name.find("clip") != name.npos) to.stop(no_media);
  const bool quantized = name.starts_with("qlora"), lora = quantized || name.starts_with("lora");
  if (!lora) return to.ignore("the model's folder says it; all of its weights are trained");
  to.set("lora.enabled", "true");
  if (quantized) to.set("model.load_in_4bit", "true");
}

// torchtune calls o_proj output_proj, and chooses feed-forward and head by switches.
void attention_modules(Importer& to, const YAML::Node& value) {
  YAML::Node names(YAML::NodeType::Sequence);
  for (const YAML::Node& item : value) names.push_back(scalar(item) == "output_proj" ? "o_proj" : scalar(item));
  const YAML::Node mlp = to.file()["model"]["apply_lora_to_mlp"];
  if (mlp && read_boolean(scalar(mlp)).value_or(false)) {
    for (const char* name : {"gate_proj", "up_proj", "down_proj"}) names.push_back(name);
  }
  to.set("lora.target_modules", names);
}

constexpr std::array model_rows = std::to_array<ImportRow>({
    converted("_component_", "lora.enabled, model.load_in_4bit", torchtune_model_class),
    converted("lora_attn_modules", "lora.target_modules", attention_modules),
    ignored("apply_lora_to_mlp", "lora.target_modules says it"),
    only_off("apply_lora_to_output", "the head has no adapter; lora.modules_to_save trains it whole"),
    copied("lora_rank", "lora.rank"),
    copied("lora_alpha", "lora.alpha"),
    copied("lora_dropout", "lora.dropout"),
    copied("use_dora", "lora.dora"),
    flagged("quantize_base", "model.load_in_4bit", "true"),
    only_off("embed_dropout", "embeddings are not dropped"),
});
void model(Importer& to, const YAML::Node& value) { value.IsMap() ? to.walk("model", value, model_rows) : to.refuse("must be a map"); }

void checkpoint_dir(Importer& to, const YAML::Node& value) { import_model(to, YAML::Node(resolved(to, scalar(value)))); }
constexpr std::array checkpointer_rows = std::to_array<ImportRow>({
    ignored("_component_", "a Hugging Face folder is read and written"),
    converted("checkpoint_dir", "model.path", checkpoint_dir),
    ignored("checkpoint_files", "the folder's index names them"),
    ignored("recipe_checkpoint", "checkpoint.resume"),
    only_off("adapter_checkpoint", "lora.adapters takes a PEFT folder"),
    ignored("output_dir", "output_dir at the top says it"),
    ignored("model_type", "told by config.json"),
    ignored("safe_serialization", "always"),
    ignored("safetensors_format", "always"),
});
void checkpointer(Importer& to, const YAML::Node& value) {
  value.IsMap() ? to.walk("checkpointer", value, checkpointer_rows) : to.refuse("must be a map");
}

void max_length(Importer& to, const YAML::Node& value) {
  to.set("data.seq_len", value);
  if (!to.has_model_folder()) to.set("model.max_seq_len", value);
}
constexpr std::array tokenizer_rows = std::to_array<ImportRow>({
    ignored("_component_", "tokenizer.json of the model's folder is read"),
    ignored("path", "tokenizer.json of the model's folder is read"),
    ignored("merges_file", "tokenizer.json of the model's folder is read"),
    ignored("special_tokens_path", "tokenizer.json of the model's folder is read"),
    converted("max_seq_len", "data.seq_len", max_length),
    only_off("prompt_template", "the chat template of the model's folder is used; write another into a file and set data.chat_template"),
    only("truncation_type", "right|off", "data.too_long = cut_start cuts the start"),
});
void tokenizer(Importer& to, const YAML::Node& value) {
  value.IsMap() ? to.walk("tokenizer", value, tokenizer_rows) : to.refuse("must be a map");
}

// The builders that read a file of one's own; the others bring a dataset of the Hub and words of their own.
void dataset_class(Importer& to, const YAML::Node& value) {
  const std::string name = component_of(to.file()["dataset"]);
  for (const std::string_view word : {"preference", "stack_exchange_paired", "hh_rlhf"}) {
    if (name.find(word) != name.npos) to.stop(no_preferences);
  }
  for (const std::string_view word : {"multimodal", "the_cauldron", "llava", "vqa"}) {
    if (name.find(word) != name.npos) to.stop(no_media);
  }
  const std::string style = scalar(to.file()["dataset"]["conversation_style"]);
  if (name == "chat_dataset") return to.set("data.format", style == "openai" ? "messages" : "sharegpt");
  if (name == "text_completion_dataset") return to.set("data.format", "text");
  if (name == "instruct_dataset") return to.set("data.format", "prompt_completion");
  to.refuse(
      "brings a dataset of the Hub, in words of its own: fetch it as JSONL in one of the formats of docs/data.md and give it with --data "
      "FILE");
}
void column_map(Importer& to, const YAML::Node& value) {
  if (!value.IsMap()) return to.refuse("must be a map");
  for (const auto& item : value) {
    const std::string ours = item.first.Scalar();
    to.enter("dataset.column_map." + ours, item.second);
    if (ours == "input" || ours == "instruction")
      to.set("data.prompt_field", item.second);
    else if (ours == "output")
      to.set("data.completion_field", item.second);
    else
      to.refuse("there are input and output");
  }
}
void data_files(Importer& to, const YAML::Node& value) {
  std::vector<std::string> names;
  if (value.IsSequence()) {
    for (const YAML::Node& name : value) names.push_back(scalar(name));
  } else {
    names.push_back(scalar(value));
  }
  to.set("data.path", base::join(names, ","));
}
void source(Importer& to, const YAML::Node& value) {
  const std::string name = scalar(value);
  const bool builder = name == "json" || name == "csv" || name == "text" || name == "parquet";
  builder ? to.ignore("told by the file's name") : import_data_path(to, value);
}
void train_on_input(Importer& to, const YAML::Node& value) { import_train_on_inputs(to, value); }
constexpr std::array torchtune_dataset_rows = std::to_array<ImportRow>({
    converted("_component_", "data.format", dataset_class),
    converted("source", "data.path", source),
    converted("data_files", "data.path", data_files),
    only("split", "train", "a file is read whole; data.max_samples takes the first so many"),
    copied("packed", "data.packing"),
    converted("train_on_input", "data.train_on", train_on_input),
    copied("conversation_column", "data.messages_field"),
    ignored("conversation_style", "data.format says it"),
    copied("new_system_prompt", "data.system_prompt"),
    copied("column", "data.text_field"),
    converted("column_map", "data.prompt_field, data.completion_field", column_map),
    ignored("split_across_pack", "a record longer than a row is cut, data.too_long"),
    only("add_eos", "true", "a text ends with the end token"),
    refused("filter_fn", "records are trained as they stand"),
    refused("name", "a part of a dataset on the Hub; fetch that part as JSONL"),
});
void torchtune_dataset(Importer& to, const YAML::Node& value) {
  if (value.IsSequence()) return to.refuse(one_set);
  value.IsMap() ? to.walk("dataset", value, torchtune_dataset_rows) : to.refuse("must be a map");
}

void optimizer_class(Importer& to, const YAML::Node& value) {
  const std::string name = base::lower(component_of(to.file()["optimizer"]));
  if (name == "adamw" || name == "pagedadamw" || name == "pagedadamw32bit") return to.set("trainer.optimizer", "adamw");
  if (name == "adamw8bit" || name == "pagedadamw8bit") return to.set("trainer.optimizer", "adamw_8bit");
  if (name == "sgd" || name == "adafactor") return to.set("trainer.optimizer", name);
  to.refuse("there is none of this name here; choose trainer.optimizer: adamw, adamw_8bit, lion, sgd, adafactor or muon");
}
void torchtune_betas(Importer& to, const YAML::Node& value) {
  if (!value.IsSequence() || value.size() != 2) return to.refuse("must be two numbers");
  to.set("trainer.beta1", value[0]);
  to.set("trainer.beta2", value[1]);
}
constexpr std::array torchtune_optimizer_rows = std::to_array<ImportRow>({
    converted("_component_", "trainer.optimizer", optimizer_class),
    copied("lr", "trainer.learning_rate"),
    copied("weight_decay", "trainer.weight_decay"),
    copied("eps", "trainer.epsilon"),
    converted("betas", "trainer.beta1, trainer.beta2", torchtune_betas),
    copied("momentum", "trainer.momentum"),
    ignored("fused", own_kernels),
    ignored("foreach", own_kernels),
});
void torchtune_optimizer(Importer& to, const YAML::Node& value) {
  value.IsMap() ? to.walk("optimizer", value, torchtune_optimizer_rows) : to.refuse("must be a map");
}

void schedule_class(Importer& to, const YAML::Node& value) {
  const std::string name = component_of(to.file()["lr_scheduler"]);
  name == "get_cosine_schedule_with_warmup" ? to.set("trainer.lr_schedule", "cosine")
                                            : to.refuse("choose trainer.lr_schedule: constant, linear, cosine or wsd");
}
constexpr std::array torchtune_schedule_rows = std::to_array<ImportRow>({
    converted("_component_", "trainer.lr_schedule", schedule_class),
    copied("num_warmup_steps", "trainer.warmup_steps"),
    only("num_cycles", "0.5", "half a wave, from the top to the end"),
});
void torchtune_scheduler(Importer& to, const YAML::Node& value) {
  value.IsMap() ? to.walk("lr_scheduler", value, torchtune_schedule_rows) : to.refuse("must be a map");
}

void loss(Importer& to, const YAML::Node& value) {
  const std::string name = component_of(value);
  for (const std::string_view word : {"DPO", "PPO", "GRPO", "RSO", "SimPO", "IPO"}) {
    if (name.find(word) != name.npos) to.stop(no_preferences);
  }
  if (name.find("KD") != name.npos) to.stop("distillation is not built");
  to.ignore("cross-entropy, as here");
}

void epochs(Importer& to, const YAML::Node& value) {
  const auto steps = base::parse_integer(to.text("max_steps_per_epoch")), count = base::parse_integer(scalar(value));
  if (!steps) return to.set("trainer.num_epochs", value);
  count ? to.set("trainer.max_steps", std::to_string(*steps * *count)) : to.refuse("must be a whole number");
}

void output_dir(Importer& to, const YAML::Node& value) { import_output(to, YAML::Node(resolved(to, scalar(value)))); }

void shuffle(Importer& to, const YAML::Node& value) { to.set("data.shuffle", value); }

void device(Importer& to, const YAML::Node& value) {
  import_word(value) == "cpu" ? to.set("trainer.target_device", "cpu") : to.ignore("GPUs are found");
}

// Weights stay whole after the forward pass, or are cut again; among one device nothing is.
void reshard(Importer& to, const YAML::Node& value) {
  const auto again = read_boolean(scalar(value));
  if (!again) return to.refuse("must be true or false");
  const std::string devices = to.text("data_parallel_shard_dim");
  if (devices == "1") return to.ignore("data_parallel_shard_dim cuts nothing");
  if (*again && devices.empty()) return to.ignore("parallel.shard=full does so");
  to.set("parallel.shard", *again ? "full" : "gradients");
}

constexpr std::array torchtune_rows = std::to_array<ImportRow>({
    converted("model", "lora.enabled, lora.rank", model),
    converted("checkpointer", "model.path", checkpointer),
    converted("tokenizer", "data.seq_len", tokenizer),
    converted("dataset", "data.path, data.format", torchtune_dataset),
    only_off("dataset_val", "give a file with --validation-data"),
    converted("optimizer", "trainer.optimizer, trainer.learning_rate", torchtune_optimizer),
    converted("lr_scheduler", "trainer.lr_schedule, trainer.warmup_steps", torchtune_scheduler),
    converted("loss", "", loss),
    converted("epochs", "trainer.num_epochs", epochs),
    ignored("max_steps_per_epoch", "read with epochs"),
    copied("batch_size", "trainer.batch_size"),
    ignored("batch_size_val", "evaluation uses trainer.batch_size"),
    copied("gradient_accumulation_steps", "trainer.gradient_accumulation"),
    copied("clip_grad_norm", "trainer.max_grad_norm"),
    copied("seed", "trainer.seed"),
    converted("shuffle", "data.shuffle", shuffle),
    copied("dtype", "model.dtype"),
    converted("device", "trainer.target_device", device),
    converted("enable_activation_checkpointing", "trainer.recompute", import_recompute),
    flagged("enable_activation_offloading", "trainer.offload_checkpoints", "true"),
    ignored("ac_mode", "trainer.recompute"),
    ignored("ac_option", "trainer.recompute"),
    ignored("memory_efficient_fsdp_wrap", "parallel.shard says what is cut"),
    ignored("custom_sharded_layers", "parallel.shard says what is cut"),
    noted("fsdp_cpu_offload", stays_on_gpus),
    converted("fsdp_reshard_after_forward", "parallel.shard", reshard),
    only("tensor_parallel_dim", "1", "a model is cut by parallel.shard alone"),
    only("context_parallel_dim", "1", "one sequence is on one GPU"),
    converted("data_parallel_shard_dim", "parallel.shard", import_shard_size),
    converted("data_parallel_replicate_dim", "parallel.replicate", import_groups),
    ignored("optimizer_in_bwd", "an update comes after the whole backward pass"),
    ignored("compile", own_kernels),
    ignored("enable_fp8_training", "trainer.fp8"),
    ignored("save_adapter_weights_only", "a run of LoRA saves its adapter"),
    ignored("save_last_epoch_only", "a checkpoint comes at the end"),
    ignored("save_every_n_steps", "a checkpoint comes every trainer.save_interval steps"),
    ignored("save_every_epoch", "a checkpoint comes every trainer.save_interval steps"),
    ignored("enable_async_checkpointing", "always"),
    copied("run_val_every_n_steps", "trainer.eval_interval"),
    converted("resume_from_checkpoint", "checkpoint.resume", import_resume),
    ignored("keep_last_n_checkpoints", "trainer.max_checkpoints"),
    converted("output_dir", "name, output", output_dir),
    ignored("metric_logger", no_tracker),
    copied("log_every_n_steps", "trainer.log_interval"),
    ignored("log_peak_memory_stats", "metrics.jsonl has memory"),
    ignored("log_level", "ranks/N.log of the run folder"),
    ignored("profiler", "monitor.profile_steps traces steps"),
    only("cudnn_deterministic_mode", "off", "trainer.deterministic"),
    ignored("fused", own_kernels),
    ignored("quantizer", "only read by recipes of quantized training"),
    stops("ref_checkpointer", no_preferences),
    stops("ref_policy_checkpointer", no_preferences),
    stops("reward_and_value_model", no_preferences),
    stops("policy_model", no_preferences),
    stops("teacher_model", "distillation is not built"),
    stops("tasks", "an evaluation of tasks, which is not built"),
    stops("prompt", "a file for writing texts: `lockstep generate` does"),
});

constexpr std::array torchtune_defaults = std::to_array<ImportDefault>({
    {"gradient_accumulation_steps", "trainer.gradient_accumulation", "1"},
    {"optimizer.weight_decay", "trainer.weight_decay", "0.01"},
    {"optimizer.betas", "trainer.beta2", "0.999"},
    {"clip_grad_norm", "trainer.max_grad_norm", "0"},
    {"lr_scheduler.num_cycles", "trainer.min_lr_ratio", "0"},
    {"dataset_val", "data.validation_fraction", "0"},
});

void fill_in_torchtune(Importer& to) {
  if (!to.has("lr_scheduler")) to.fill_in("lr_scheduler", "trainer.lr_schedule", "constant");
}

}  // namespace

const ImportProgram& torchtune() {
  static const ImportProgram program = {
      .name = "torchtune",
      .word = "torchtune",
      .signs = {"tokenizer", "checkpointer", "loss", "metric_logger", "max_steps_per_epoch", "enable_activation_checkpointing"},
      .rows = torchtune_rows,
      .defaults = torchtune_defaults,
      .fill_in = fill_in_torchtune,
      .model_key = "checkpointer.checkpoint_dir"};
  return program;
}

}  // namespace lockstep::config
