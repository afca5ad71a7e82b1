// Values of Axolotl's keys that need more than copying.
#include <array>

#include "base/text.h"
#include "config/import/axolotl.h"
#include "config/table/value.h"

namespace lockstep::config {
namespace {

// A quantized base without an adapter is how some files say "load it so"; it cannot be trained whole.
void axolotl_bits(Importer& to, const YAML::Node& value, std::string_view ours) {
  const auto yes = value.IsScalar() ? read_boolean(value.Scalar()) : std::nullopt;
  if (!yes) return to.refuse("must be true or false");
  if (!*yes) return to.ignore("off");
  if (!to.has("adapter")) return to.refuse("quantized weights are frozen: set adapter: lora, or leave it out");
  to.set(ours, "true");
}

constexpr std::array bnb_rows = std::to_array<ImportRow>({
    converted("bnb_4bit_quant_type", "", import_quant_type),
    copied("bnb_4bit_use_double_quant", "model.double_quant"),
    ignored("bnb_4bit_compute_dtype", "matmuls run in model.dtype"),
    ignored("bnb_4bit_quant_storage", "weights are stored as bytes"),
    only("load_in_4bit", "true|off", "adapter and load_in_4bit say it"),
    only("llm_int8_threshold", "6.0|6|off", "8-bit weights are blockwise here, without outliers"),
    only_off("llm_int8_has_fp16_weight", "8-bit weights are frozen"),
    only_off("llm_int8_skip_modules", "every matrix of a block is quantized"),
});

}  // namespace

void axolotl_adapter(Importer& to, const YAML::Node& value) {
  const std::string kind = value.IsScalar() ? value.Scalar() : "";
  if (kind != "lora" && kind != "qlora") return to.refuse("adapters are lora and qlora");
  to.set("lora.enabled", "true");
  if (kind == "qlora") to.set("model.load_in_4bit", "true");
}

void axolotl_four_bits(Importer& to, const YAML::Node& value) { axolotl_bits(to, value, "model.load_in_4bit"); }
void axolotl_eight_bits(Importer& to, const YAML::Node& value) { axolotl_bits(to, value, "model.load_in_8bit"); }

void axolotl_bnb_config(Importer& to, const YAML::Node& value) {
  if (import_is_off(value)) return to.ignore("empty");
  value.IsMap() ? to.walk("bnb_config_kwargs", value, bnb_rows) : to.refuse("must be a map");
}

void axolotl_target_linear(Importer& to, const YAML::Node&) {
  if (!to.on("lora_target_linear")) return to.ignore("off");
  to.set("lora.target_modules", "[all-linear]");
}

void axolotl_target_modules(Importer& to, const YAML::Node& value) {
  if (to.on("lora_target_linear")) return to.ignore("lora_target_linear takes all of them");
  import_lora_targets(to, value);
}

// Without bf16 and fp16 Axolotl loads f32, or f16 where weights are held in 8 bits.
void axolotl_bf16(Importer& to, const YAML::Node& value) {
  const bool off = value.IsScalar() && !read_boolean(value.Scalar()).value_or(true);
  const bool half = to.on("fp16") || to.on("float16");
  if (!off) return import_bf16(to, value);
  if (half || to.on("bfloat16") || (to.has("bf16") && import_word(to.file()["bf16"]) == "auto")) return to.ignore("off");
  to.set("model.dtype", to.on("load_in_8bit") ? "f16" : "f32");
}

void axolotl_batch_size(Importer& to, const YAML::Node& value) {
  const auto total = base::parse_integer(import_text(value)), micro = base::parse_integer(to.text("micro_batch_size"));
  if (to.has("gradient_accumulation_steps") || !total || !micro || *micro < 1 || *total % *micro != 0)
    return to.refuse("say micro_batch_size and gradient_accumulation_steps");
  to.set("trainer.gradient_accumulation", std::to_string(*total / *micro));
}

void axolotl_shuffle(Importer& to, const YAML::Node& value) {
  const auto yes = value.IsScalar() ? read_boolean(value.Scalar()) : std::nullopt;
  if (!yes) return to.refuse("must be true or false");
  *yes ? to.ignore("as here") : to.set("data.shuffle", "false");
}

void axolotl_too_long(Importer& to, const YAML::Node& value) {
  const std::string word = import_word(value);
  if (word == "drop") return to.set("data.too_long", "skip");
  if (word == "truncate") return to.set("data.too_long", "cut");
  if (word == "raise") return to.set("data.too_long", "error");
  to.refuse("there are drop, truncate and raise");
}

// Kernels that compute the same are built in; what else plugins do is not.
void axolotl_plugins(Importer& to, const YAML::Node& value) {
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

void axolotl_activation_offloading(Importer& to, const YAML::Node& value) {
  import_is_off(value) ? to.ignore("off") : to.set("trainer.offload_checkpoints", "true");
}

}  // namespace lockstep::config
