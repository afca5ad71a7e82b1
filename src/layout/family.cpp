// The table of families.
#include "layout/family.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/error.h"

namespace lockstep::layout {
namespace {

// Llama's, which the families after it have taken over.
constexpr Names llama_names{.embedding = "model.embed_tokens",
                            .blocks = "model.layers",
                            .final_norm = "model.norm",
                            .head = "lm_head",
                            .q = "self_attn.q_proj",
                            .k = "self_attn.k_proj",
                            .v = "self_attn.v_proj",
                            .out = "self_attn.o_proj",
                            .gate = "mlp.gate_proj",
                            .up = "mlp.up_proj",
                            .down = "mlp.down_proj",
                            .input_norm = "input_layernorm",
                            .post_norm = "post_attention_layernorm",
                            .q_norm = "self_attn.q_norm",
                            .k_norm = "self_attn.k_norm"};

constexpr Names olmo2_names = [] {
  Names names = llama_names;
  names.input_norm = "post_attention_layernorm";
  names.post_norm = "post_feedforward_layernorm";
  return names;
}();

constexpr std::array table = {
    Family{.family = config::Family::llama,
           .model_type = "llama",
           .architecture = "LlamaForCausalLM",
           .max_positions = 2048,
           .norm_eps = 1e-6,
           .states_kv_heads = false,
           .qkv_bias = Trait::may,
           .qk_norm = Trait::never,
           .has_window = false,
           .window_switch = false,
           .norms = Norms::before,
           .names = llama_names},
    Family{.family = config::Family::qwen2,
           .model_type = "qwen2",
           .architecture = "Qwen2ForCausalLM",
           .max_positions = 32768,
           .norm_eps = 1e-6,
           .states_kv_heads = true,
           .qkv_bias = Trait::always,
           .qk_norm = Trait::never,
           .has_window = true,
           .window_switch = true,
           .norms = Norms::before,
           .names = llama_names},
    Family{.family = config::Family::qwen3,
           .model_type = "qwen3",
           .architecture = "Qwen3ForCausalLM",
           .max_positions = 32768,
           .norm_eps = 1e-6,
           .states_kv_heads = true,
           .qkv_bias = Trait::may,
           .qk_norm = Trait::always,
           .has_window = true,
           .window_switch = true,
           .norms = Norms::before,
           .names = llama_names},
    Family{.family = config::Family::mistral,
           .model_type = "mistral",
           .architecture = "MistralForCausalLM",
           .max_positions = 131072,
           .norm_eps = 1e-6,
           .states_kv_heads = true,
           .qkv_bias = Trait::may,
           .qk_norm = Trait::never,
           .has_window = true,
           .window_switch = false,
           .norms = Norms::before,
           .names = llama_names},
    Family{.family = config::Family::olmo2,
           .model_type = "olmo2",
           .architecture = "Olmo2ForCausalLM",
           .max_positions = 2048,
           .norm_eps = 1e-5,
           .states_kv_heads = false,
           .qkv_bias = Trait::never,
           .qk_norm = Trait::always,
           .has_window = false,
           .window_switch = false,
           .norms = Norms::behind,
           .names = olmo2_names},
};

bool allows(Trait trait, bool has) { return trait == Trait::may || has == (trait == Trait::always); }

}  // namespace

std::string Names::in_block(std::int64_t block, std::string_view module) const { return fmt::format("{}.{}.{}", blocks, block, module); }

std::span<const Family> families() { return table; }

const Family& family_named(config::Family family) {
  const auto found = std::find_if(table.begin(), table.end(), [&](const Family& one) { return one.family == family; });
  base::check(found != table.end(), "a family of models stands in the table");
  return *found;
}

config::Family family_of_shape(const config::ModelConfig& m) {
  if (m.qk_norm) return m.qkv_bias ? config::Family::automatic : config::Family::qwen3;
  if (m.qkv_bias) return config::Family::qwen2;
  // transformers' Llama knows no window and wants heads that divide the width; its Mistral is the same network without these rules.
  const bool plain = m.sliding_window == 0 && m.num_heads > 0 && m.hidden_size % m.num_heads == 0;
  return plain ? config::Family::llama : config::Family::mistral;
}

const Family& exported_family(const config::ModelConfig& m) {
  const bool stated = m.family != config::Family::automatic && m.family != config::Family::llama;
  const config::Family family = stated ? m.family : family_of_shape(m);
  if (family == config::Family::automatic) {
    throw base::usage_error(
        "export",
        "no Hugging Face family has both biases of q, k and v (model.qkv_bias) and head norms (model.qk_norm), so there "
        "is no folder that transformers would load.");
  }
  return family_named(family);
}

Norms norms_of(const config::ModelConfig& model) {
  return model.family == config::Family::automatic ? Norms::before : family_named(model.family).norms;
}

const Names& names_of(const config::ModelConfig& model) {
  return model.family == config::Family::automatic ? llama_names : family_named(model.family).names;
}

std::optional<std::string_view> contradiction(const config::ModelConfig& model) {
  if (model.family == config::Family::automatic) return std::nullopt;
  const Family& family = family_named(model.family);
  if (!allows(family.qkv_bias, model.qkv_bias)) return "model.qkv_bias";
  if (!allows(family.qk_norm, model.qk_norm)) return "model.qk_norm";
  // A Llama with a window is a Mistral, which is how it is exported.
  if (model.sliding_window > 0 && !family.has_window && model.family != config::Family::llama) return "model.sliding_window";
  return std::nullopt;
}

std::int64_t context_length(const config::ModelConfig& model) {
  const config::Family family = model.family == config::Family::automatic ? family_of_shape(model) : model.family;
  // A network that no family has follows Qwen's rule, the stricter one.
  const bool some_layers = family == config::Family::automatic || family_named(family).window_switch;
  return model.sliding_window > 0 && some_layers ? std::min(model.max_seq_len, model.sliding_window) : model.max_seq_len;
}

}  // namespace lockstep::layout
