// Keys of other programs that Lockstep does not have: named as not built yet, or with what does the same here.
#include <algorithm>

#include "base/text.h"
#include "config/table/option.h"

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
        "n_shared_experts", "load_balance_alpha"}},
      {"training by preferences", {}, {}, {"group_size", "beta_kl"}},
      {"the Mamba state-space layer", {"mamba", "ssm"}, {"mamba_", "mamba2_", "mamba3_", "ssm_"}, {"state_size", "conv_kernel"}},
      {"multi-token prediction", {}, {"mtp_"}, {"num_nextn_predict_layers"}},
      {"training of biases beside adapters", {}, {}, {"bias", "lora_bias"}},
      {"tensor and pipeline parallelism",
       {},
       {"tensor_parallel", "pipeline_parallel", "context_parallel"},
       {"tensor", "pipeline", "tp_size", "pp_size"}},
  };
  return list;
}

struct Counterpart {
  std::vector<std::string_view> names;  // the last part of a key
  std::string_view hint;
};

const std::vector<Counterpart>& counterparts() {
  static const std::vector<Counterpart> list = {
      {{"evaluation_strategy", "eval_strategy"}, "Evaluation comes every trainer.eval_interval steps and at the end."},
      {{"fsdp_config", "deepspeed", "zero_optimization", "sharding"},
       "Use parallel.shard: optimizer (ZeRO-1), gradients (ZeRO-2) or full (ZeRO-3, FSDP)."},
      {{"save_strategy"}, "Checkpoints come every trainer.save_interval steps and at the end."},
      {{"logging_strategy"}, "Progress is shown every trainer.log_interval steps."},
      {{"train_on_inputs"}, "Use data.train_on: all where it was true, responses where it was false."},
      {{"bnb_4bit_quant_type"}, "4-bit weights are NF4, the default of bitsandbytes users; remove the key."},
      {{"bnb_4bit_compute_dtype"}, "Matmuls run in model.dtype; remove the key."},
      {{"task_type", "inference_mode"}, "Lockstep trains causal language models; remove the key."},
      {{"fan_in_fan_out"}, "Weights are [out, in] as in Llama and Qwen; remove the key."},
      {{"report_to", "logging_dir"}, "Every run writes metrics.jsonl; set monitor.tensorboard or monitor.wandb for files of those."},
      {{"dataloader_drop_last", "drop_last"},
       "No sample is dropped: the last short batch is filled with samples of weight 0. Remove the key."},
      {{"per_device_eval_batch_size", "eval_batch_size"}, "Evaluation uses trainer.batch_size."},
      {{"train_batch_size"}, "Programs differ in what it means: use trainer.batch_size (per device) or trainer.global_batch_size."},
      {{"local_rank", "rank", "world_size"}, "The launcher gives ranks their numbers; remove the key."},
      {{"split_batches", "dispatch_batches"}, "Use data.distributed_loading."},
      {{"broadcast_buffers", "ddp_broadcast_buffers"},
       "A decoder has no buffers, and its weights are compared at the start; remove the key."},
  };
  return list;
}

struct ValueCounterpart {
  std::string_view key;
  std::vector<std::string_view> values;  // lower case, without '-' and '_'
  std::string_view hint;
};

const std::vector<ValueCounterpart>& value_counterparts() {
  static const std::vector<ValueCounterpart> list = {
      {"parallel.shard",
       {"hybridshard", "hsdp", "hybrid"},
       "Use full, with parallel.replicate = the number of groups that each hold everything."},
      {"parallel.shard", {"hybridshardzero2"}, "Use gradients, with parallel.replicate = the number of groups that each hold everything."},
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

std::optional<std::string> counterpart_of(std::string_view spelled) {
  for (const Counterpart& one : counterparts()) {
    if (contains(one.names, spelled.substr(spelled.rfind('.') + 1))) return std::string(one.hint);
  }
  return std::nullopt;
}

std::optional<std::string> counterpart_of_value(std::string_view key, std::string_view text) {
  std::string plain = base::lower(text);
  std::erase_if(plain, [](char c) { return c == '-' || c == '_'; });
  for (const ValueCounterpart& one : value_counterparts()) {
    if (one.key == key && contains(one.values, plain)) return std::string(one.hint);
  }
  return std::nullopt;
}

}  // namespace lockstep::config
