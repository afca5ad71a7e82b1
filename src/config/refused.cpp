// Keys of other programs that name what Lockstep does not do yet: refused by name, so that nobody trains another model than the file says.
#include <algorithm>

#include "config/option.h"

namespace lockstep::config {
namespace {

struct Unbuilt {
  std::string_view what;
  std::vector<std::string_view> sections;  // "lora": everything below
  std::vector<std::string_view> prefixes;  // of the last part of a key
  std::vector<std::string_view> names;     // the last part of a key
};

const std::vector<Unbuilt>& unbuilt() {
  static const std::vector<Unbuilt> list = {
      {"multi-head latent attention",
       {},
       {},
       {"kv_latent_dim", "q_latent_dim", "d_rope", "kv_lora_rank", "q_lora_rank", "qk_rope_head_dim", "qk_nope_head_dim", "v_head_dim"}},
      {"mixture of experts",
       {"moe"},
       {"moe_", "shared_expert", "router_"},
       {"num_experts", "experts_per_tok", "experts_per_token", "num_experts_per_tok", "num_local_experts", "n_routed_experts",
        "n_shared_experts"}},
      {"the Mamba state-space layer", {"mamba", "ssm"}, {"mamba_", "mamba2_", "mamba3_", "ssm_"}, {"state_size", "conv_kernel"}},
      {"multi-token prediction", {}, {"mtp_"}, {"num_nextn_predict_layers"}},
      {"LoRA", {"lora", "peft"}, {"lora_"}, {"use_lora", "use_peft", "use_dora"}},
      {"quantized training", {"quantization", "quantization_config"}, {"bnb_"}, {"load_in_4bit", "load_in_8bit", "use_qlora", "fp8"}},
      {"sharded training", {"fsdp", "fsdp_config", "deepspeed"}, {"zero_"}, {"fsdp", "deepspeed", "sharding", "shard"}},
      {"tensor and pipeline parallelism",
       {},
       {"tensor_parallel", "pipeline_parallel", "context_parallel"},
       {"tensor", "pipeline", "tp_size", "pp_size"}},
      {"activation recomputation", {}, {}, {"gradient_checkpointing", "recompute", "activation_checkpointing"}},
      {"scaling of rotary positions", {"rope_scaling"}, {}, {"rope_scaling"}},
      {"sliding-window attention", {}, {}, {"sliding_window", "use_sliding_window"}},
  };
  return list;
}

bool contains(const std::vector<std::string_view>& words, std::string_view word) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

}  // namespace

std::optional<std::string> not_built_yet(std::string_view spelled) {
  const std::string_view leaf = spelled.substr(spelled.rfind('.') + 1);
  for (const Unbuilt& one : unbuilt()) {
    bool named = contains(one.names, leaf);
    for (const std::string_view prefix : one.prefixes) named = named || leaf.starts_with(prefix);
    for (std::string_view path = spelled; !path.empty() && !named;) {
      const std::size_t dot = path.rfind('.');
      const std::string_view part = path.substr(dot + 1);
      named = contains(one.sections, part);
      path = dot == path.npos ? std::string_view() : path.substr(0, dot);
    }
    if (named) return std::string(one.what);
  }
  return std::nullopt;
}

}  // namespace lockstep::config
