// What Unsloth's from_pretrained and get_peft_model take, beside the keys of TRL, which its notebooks train with.
#include <array>

#include "config/import/table.h"

namespace lockstep::config {
namespace {

constexpr std::string_view no_download = "nothing is downloaded";
constexpr std::string_view config_says = "the model's config.json says it";

constexpr std::array unsloth_rows = std::to_array<ImportRow>({
    converted("model_name", "model.path", import_model),
    ignored("device_map", "every rank has its own device; parallel.shard cuts a model that one GPU cannot hold"),
    ignored("full_finetuning", "without an adapter all weights are trained"),
    ignored("load_in_16bit", "model.dtype says it"),
    ignored("float32_mixed_precision", "masters and sums are f32 beside bf16 weights"),
    ignored("text_only", "language models only"),
    only_off("load_in_fp8", "weights are held in model.dtype, NF4 or int8"),
    ignored("token", no_download),
    ignored("revision", no_download),
    ignored("local_files_only", no_download),
    ignored("use_exact_model_name", no_download),
    ignored("fix_tokenizer", "the tokenizer is that of the model's folder"),
    only_off("resize_model_vocab", "the vocabulary stays as it is; add tokens to the model's folder first"),
    only_off("rope_scaling", config_says),
    ignored("fast_inference", generation),
    ignored("gpu_memory_utilization", generation),
    ignored("float8_kv_cache", generation),
    ignored("max_lora_rank", generation),
    ignored("disable_log_stats", generation),
    ignored("unsloth_*", own_kernels),
    ignored("offload_embedding", "memory is planned: `lockstep plan`"),
    only_off("qat_scheme", "training for quantization is not built"),
    copied("r", "lora.rank"),
    converted("target_modules", "lora.target_modules", import_lora_targets),
    only_off("target_parameters", "adapters are on matrices of attention and feed-forward"),
    ignored("layers_pattern", "layers are counted from 0"),
    copied("modules_to_save", "lora.modules_to_save"),
    converted("use_gradient_checkpointing", "trainer.recompute", import_recompute),
    ignored("random_state", "trainer.seed draws an adapter's first weights too"),
    ignored("finetune_*", "lora.target_modules says which matrices have adapters"),
    ignored("temporary_location", "memory is planned, not spilled"),
});

void fill_in_unsloth(Importer& to) {
  if (to.on("use_peft")) {
    to.fill_in("r", "lora.rank", "16");
    to.fill_in("lora_alpha", "lora.alpha", "16");
    to.fill_in("lora_dropout", "lora.dropout", "0");
    to.fill_in("target_modules", "lora.target_modules", "[q_proj, k_proj, v_proj, o_proj, gate_proj, up_proj, down_proj]");
  }
  fill_in_length(to, "max_seq_length", 2048);
  trl().fill_in(to);
}

}  // namespace

const ImportProgram& unsloth() {
  static const std::vector<ImportRow> rows = followed_by(unsloth_rows, trl().rows);
  static const ImportProgram program = {.name = "Unsloth",
                                        .word = "unsloth",
                                        .signs = {},  // it has no files: what a notebook says is written out for --from unsloth
                                        .rows = rows,
                                        .defaults = trl().defaults,
                                        .fill_in = fill_in_unsloth,
                                        .model_key = "model_name"};
  return program;
}

}  // namespace lockstep::config
