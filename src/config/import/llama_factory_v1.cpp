// The keys of LLaMA-Factory's v1 files, which are another program's than those before: few keys, with parts in maps.
#include <array>

#include "base/text.h"
#include "config/import/table.h"
#include "config/table/value.h"

namespace lockstep::config {
namespace {

void v1_model_class(Importer& to, const YAML::Node& value) {
  const std::string name = import_word(value);
  if (name == "llm") return to.ignore("as here");
  name == "cls" ? to.stop(no_preferences) : to.stop(no_media);
}

void lora_name(Importer& to, const YAML::Node& value) {
  if (import_word(value) == "lora") return to.set("lora.enabled", "true");
  to.refuse("adapters are lora; blocks are chosen with lora.layers_to_transform");
}

constexpr std::array peft_rows = std::to_array<ImportRow>({
    converted("name", "lora.enabled", lora_name),
    copied("r", "lora.rank"),
    copied("lora_alpha", "lora.alpha"),
    copied("lora_dropout", "lora.dropout"),
    converted("target_modules", "lora.target_modules", import_lora_targets),
    copied("modules_to_save", "lora.modules_to_save"),
    copied("use_rslora", "lora.rslora"),
    copied("use_dora", "lora.dora"),
    copied("adapter_name_or_path", "lora.adapters"),
    only("bias", "none", "training of biases beside adapters is not built yet"),
});
void peft(Importer& to, const YAML::Node& value) { value.IsMap() ? to.walk("peft_config", value, peft_rows) : to.refuse("must be a map"); }

void quant_bits(Importer& to, const YAML::Node& value) {
  const std::string bits = import_text(value);
  bits == "4" ? to.set("model.load_in_4bit", "true") : bits == "8" ? to.set("model.load_in_8bit", "true") : to.refuse("there are 4 and 8");
}
constexpr std::array quant_rows = std::to_array<ImportRow>({
    only("name", "bnb|auto", "weights are quantized as bitsandbytes does"),
    converted("quantization_bit", "model.load_in_4bit, model.load_in_8bit", quant_bits),
    converted("quantization_type", "", import_quant_type),
    copied("double_quantization", "model.double_quant"),
});
void quant(Importer& to, const YAML::Node& value) {
  value.IsMap() ? to.walk("quant_config", value, quant_rows) : to.refuse("must be a map");
}

void v1_dataset(Importer& to, const YAML::Node& value) {
  const std::string name = import_text(value);
  if (name.ends_with(".yaml") || name.ends_with(".yml"))
    return to.refuse("a list of datasets: put their files together and give them with --data one.jsonl,two.jsonl");
  import_data_path(to, value);
}

void v1_template(Importer& to, const YAML::Node& value) { import_named_template(to, import_text(value)); }

constexpr std::string_view sampling = "only read when writing texts";

constexpr std::array v1_rows = std::to_array<ImportRow>({
    converted("model", "model.path", import_model),
    converted("model_class", "", v1_model_class),
    converted("template", "data.chat_template", v1_template),
    ignored("trust_remote_code", no_remote_code),
    ignored("flash_attn", own_kernels),
    ignored("kernel_config", own_kernels),
    ignored("init_config", "every rank reads the model's folder"),
    converted("peft_config", "lora.enabled, lora.rank", peft),
    converted("quant_config", "model.load_in_4bit", quant),
    only_off("dist_config", one_axis),
    converted("train_dataset", "data.path", v1_dataset),
    converted("dataset", "data.path", v1_dataset),
    refused("eval_dataset", "give a file with --validation-data"),
    converted("cutoff_len", "data.seq_len", import_length),
    converted("output_dir", "name, output", import_output),
    copied("micro_batch_size", "trainer.batch_size"),
    copied("global_batch_size", "trainer.global_batch_size"),
    copied("gradient_accumulation_steps", "trainer.gradient_accumulation"),
    only("batching_strategy", "normal|padding_free|off", "data.packing fills rows with several records"),
    ignored("batching_workers", "threads read data, data.workers"),
    copied("learning_rate", "trainer.learning_rate"),
    copied("weight_decay", "trainer.weight_decay"),
    copied("max_grad_norm", "trainer.max_grad_norm"),
    converted("num_train_epochs", "trainer.num_epochs", import_epochs),
    converted("max_steps", "trainer.max_steps", import_max_steps),
    converted("warmup_steps", "trainer.warmup_steps, trainer.warmup_ratio", import_warmup_steps),
    converted("warmup_ratio", "trainer.warmup_ratio", import_warmup_ratio),
    only_off("lr_scheduler_config", "say it in the section trainer: lr_schedule, warmup_steps"),
    only_off("optim_config", "say it in the section trainer: optimizer, learning_rate"),
    converted("bf16", "model.dtype", import_bf16),
    converted("enable_activation_checkpointing", "trainer.recompute", import_recompute),
    copied("seed", "trainer.seed"),
    converted("logging_steps", "trainer.log_interval", import_logging_steps),
    converted("save_steps", "trainer.save_interval", import_save_steps),
    copied("save_total_limit", "trainer.max_checkpoints"),
    converted("resume_from_checkpoint", "checkpoint.resume", import_resume),
    converted("report_to", "monitor.tensorboard, monitor.wandb", import_report_to),
    stops("stage", no_preferences),
    stops("beta", no_preferences),
    stops("dpo_config", no_preferences),
    stops("rm_config", no_preferences),
    stops("ref_model", no_preferences),
    ignored("sample_*", sampling),
    ignored("max_new_tokens", sampling),
});

constexpr std::array v1_defaults = std::to_array<ImportDefault>({
    {"micro_batch_size", "trainer.batch_size", "1"},
    {"learning_rate", "trainer.learning_rate", "1e-4"},
    {"eval_dataset", "data.validation_fraction", "0"},
});

}  // namespace

const ImportProgram& llama_factory_v1() {
  static const ImportProgram program = {
      .name = "LLaMA-Factory v1",
      .word = "llama-factory-v1",
      .signs = {"model_class", "peft_config", "kernel_config", "dist_config", "quant_config", "train_dataset", "init_config",
                "sample_backend", "global_batch_size", "cutoff_len", "micro_batch_size"},
      .rows = v1_rows,
      .defaults = v1_defaults,
      .model_key = "model"};
  return program;
}

}  // namespace lockstep::config
