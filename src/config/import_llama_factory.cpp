// The keys of LLaMA-Factory files. What they share with TrainingArguments is in that table.
#include <array>
#include <nlohmann/json.hpp>

#include "base/files.h"
#include "base/text.h"
#include "config/import_table.h"
#include "config/value.h"

namespace lockstep::config {
namespace {

namespace fs = std::filesystem;

void stage(Importer& to, const YAML::Node& value) {
  const std::string name = import_text(value);
  if (name == "sft" || name == "pt") return to.ignore("the format of the data says it");
  to.refuse("only supervised training is built");
}

void finetuning_type(Importer& to, const YAML::Node& value) {
  const std::string name = import_text(value);
  if (name == "lora") return to.set("lora.enabled", "true");
  if (name == "full") return to.ignore("as without lora.enabled");
  to.refuse("there are lora and full; single layers are chosen with lora.layers_to_transform");
}

void quantization_bit(Importer& to, const YAML::Node& value) {
  const std::string bits = import_text(value);
  if (bits == "4") return to.set("model.load_in_4bit", "true");
  if (bits == "8") return to.set("model.load_in_8bit", "true");
  to.refuse("there are 4 and 8");
}

void quantization_method(Importer& to, const YAML::Node& value) {
  const std::string name = base::lower(import_text(value));
  if (name == "bitsandbytes" || name == "bnb") return to.ignore("as here");
  to.refuse("weights are quantised as bitsandbytes does");
}

// A name in dataset_info.json leads to a file and its format.
void dataset(Importer& to, const YAML::Node& value) {
  const std::string name = value.IsScalar() ? value.Scalar() : "";
  if (name.find(',') != name.npos || value.IsSequence())
    return to.refuse("one set of records is read: put files of one format together, --data one.jsonl,two.jsonl");
  const fs::path folder = to.has("dataset_dir") ? to.text("dataset_dir") : "data";
  std::error_code error;
  if (fs::exists(folder / "dataset_info.json", error)) {
    const auto info = nlohmann::json::parse(base::read_text(folder / "dataset_info.json"), nullptr, false);
    if (info.is_object() && info.contains(name) && info[name].is_object() && info[name].contains("file_name") &&
        info[name]["file_name"].is_string()) {
      return to.set("data.path", (folder / info[name]["file_name"].get<std::string>()).string());
    }
  }
  to.refuse(fmt::format("{} does not name a file for it: give the file with --data FILE", (folder / "dataset_info.json").string()));
}

void length(Importer& to, const YAML::Node& value) {
  to.set("data.seq_len", value);
  if (to.text("finetuning_type") != "lora" && !fs::is_directory(to.text("model_name_or_path"))) to.set("model.max_seq_len", value);
}

constexpr std::string_view own_kernels = "Lockstep's own fused kernels are always on";
constexpr std::string_view preferences = "only supervised training is built";
constexpr std::string_view tracker = "every run writes metrics.jsonl; monitor.tensorboard writes TensorBoard files";

constexpr std::array own_rows = std::to_array<ImportRow>({
    converted("model_name_or_path", import_model),
    only_off("trust_remote_code", "code of a model is never run; the families in docs/finetuning.md are built in"),
    copied("adapter_name_or_path", "lora.adapters"),
    ignored("adapter_folder", "adapters are in the run folder"),
    converted("stage", stage),
    ignored("do_train", "`lockstep train` does"),
    ignored("do_eval", "evaluation comes with training"),
    only_off("do_predict", "`lockstep generate --file` does"),
    converted("finetuning_type", finetuning_type),
    copied("lora_rank", "lora.rank"),
    copied("lora_alpha", "lora.alpha"),
    copied("lora_dropout", "lora.dropout"),
    converted("lora_target", import_lora_targets),
    copied("additional_target", "lora.modules_to_save"),
    copied("use_rslora", "lora.rslora"),
    copied("use_dora", "lora.dora"),
    copied("loraplus_lr_ratio", "lora.b_lr_ratio"),
    copied("loraplus_lr_embedding", "trainer.embedding_learning_rate"),
    only_off("pissa_*", "adapters start as PEFT's standard ones do"),
    only_off("create_new_adapter", "lora.adapters folds all but the last and trains the last; fold it with `lockstep merge` for a new one"),
    only_off("freeze_*", "lora.layers_to_transform chooses blocks"),
    only_off("use_galore", "GaLore is not built"),
    only_off("use_apollo", "Apollo is not built"),
    only_off("use_badam", "BAdam is not built"),
    only_off("use_llama_pro", "LLaMA Pro is not built"),
    flagged("use_muon", "trainer.optimizer", "muon"),
    converted("quantization_bit", quantization_bit),
    converted("quantization_method", quantization_method),
    converted("quantization_type",
              [](Importer& to, const YAML::Node& value) {
                import_text(value) == "nf4" ? to.ignore("as here") : to.refuse("4-bit weights are NF4");
              }),
    copied("double_quantization", "model.double_quant"),
    ignored("upcast_layernorm", "norms are computed in f32"),
    ignored("upcast_lmhead_output", "the loss is computed in f32"),
    converted("dataset", dataset),
    ignored("dataset_dir", "read with dataset"),
    refused("eval_dataset", "give a file with --validation-data"),
    ignored("template", "the template of the model's folder is used"),
    copied("default_system", "data.system_prompt"),
    converted("cutoff_len", length),
    copied("max_samples", "data.max_samples"),
    converted("train_on_prompt", import_train_on_inputs),
    flagged("mask_history", "data.train_on", "last"),
    copied("packing", "data.packing"),
    flagged("neat_packing", "data.packing", "true"),
    converted("val_size", import_validation_size),
    only_off("streaming", "files are mapped, never read whole"),
    ignored("buffer_size", "the order is a permutation of all samples"),
    only_off("mix_strategy", "one set of records is read"),
    ignored("overwrite_cache", "a change of data or settings makes a new cache"),
    ignored("preprocessing_num_workers", "all cores tokenise"),
    ignored("preprocessing_batch_size", "all cores tokenise"),
    copied("tokenized_path", "data.cache_dir"),
    ignored("flash_attn", own_kernels),
    ignored("enable_liger_kernel", own_kernels),
    ignored("use_unsloth*", own_kernels),
    only_off("shift_attn", "shifted sparse attention is not built"),
    only_off("rope_scaling", "the model's config.json says it"),
    flagged("disable_gradient_checkpointing", "trainer.recompute", "none"),
    flagged("pure_bf16", "model.dtype", "bf16"),
    ignored("use_cache", "training has no cache"),
    ignored("plot_loss", "metrics.jsonl holds the losses"),
    ignored("overwrite_output_dir", "a new name makes a new run folder; nothing is written over"),
    ignored("include_num_input_tokens_seen", "metrics.jsonl counts tokens"),
    ignored("compute_accuracy", "evaluation says it"),
    only_off("resize_vocab", "the vocabulary stays as it is"),
    only_off("new_special_tokens", "the vocabulary stays as it is"),
    only_off("pref_*", preferences),
    only_off("ref_model*", preferences),
    only_off("reward_model*", preferences),
    only_off("use_swanlab", tracker),
    ignored("swanlab_*", tracker),
    ignored("ray_*", "ranks are started by lockstep"),
    ignored("resources_per_worker", "ranks are started by lockstep"),
    ignored("placement_strategy", "ranks are started by lockstep"),
    only_off("image_*", "language models only"),
    only_off("video_*", "language models only"),
    only_off("freeze_vision_tower", "language models only"),
    only_off("export_*", "`lockstep merge` and `lockstep export` write folders"),
});

constexpr std::array defaults = std::to_array<ImportDefault>({
    {"learning_rate", "trainer.learning_rate", "5e-5"},
    {"num_train_epochs", "trainer.num_epochs", "3"},
    {"lr_scheduler_type", "trainer.lr_schedule", "linear"},
    {"weight_decay", "trainer.weight_decay", "0"},
    {"adam_beta2", "trainer.beta2", "0.999"},
    {"lr_scheduler_kwargs", "trainer.min_lr_ratio", "0"},
    {"lora_rank", "lora.rank", "8", "finetuning_type"},
    {"val_size", "data.validation_fraction", "0"},
    {"gradient_checkpointing", "trainer.recompute", "blocks"},
});

}  // namespace

const ImportProgram& llama_factory() {
  static const std::vector<ImportRow> rows = [] {
    std::vector<ImportRow> all(own_rows.begin(), own_rows.end());
    all.insert(all.end(), hugging_face().rows.begin(), hugging_face().rows.end());
    return all;
  }();
  static const ImportProgram program = {"LLaMA-Factory",
                                        "llama-factory",
                                        {"finetuning_type", "cutoff_len", "stage", "template", "lora_rank", "lora_target", "dataset_dir",
                                         "preprocessing_num_workers", "quantization_bit"},
                                        rows,
                                        defaults};
  return program;
}

}  // namespace lockstep::config
