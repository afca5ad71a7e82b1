// What other programs call sharding: DeepSpeed's stages, FSDP's strategies.
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <filesystem>

#include "base/text.h"
#include "config/import/table.h"
#include "config/table/value.h"

namespace lockstep::config {
namespace {

constexpr std::string_view on_gpus =
    "weights and states stay on the GPUs: where memory is short use more ranks, or trainer.recompute=blocks";
constexpr std::string_view by_hand = "say it by parallel.shard: optimizer (stage 1), gradients (stage 2) or full (stage 3)";
constexpr std::string_view groups = "set parallel.replicate to the number of groups, such as one per machine";

void set_stage(Importer& to, std::string_view stage) {
  if (stage == "0") return to.ignore("off");
  if (stage == "1") return to.set("parallel.shard", "optimizer");
  if (stage == "2") return to.set("parallel.shard", "gradients");
  if (stage == "3") return to.set("parallel.shard", "full");
  to.refuse("there are stages 0 to 3");
}

bool offloads(const YAML::Node& zero, const char* key) {
  if (!zero[key] || !zero[key].IsMap() || !zero[key]["device"]) return false;
  return import_word(zero[key]["device"]) != "none";
}

void set_zero(Importer& to, const YAML::Node& zero) {
  if (!zero || !zero.IsMap() || !zero["stage"]) return to.ignore("off");
  set_stage(to, import_text(zero["stage"]));
  if (offloads(zero, "offload_optimizer") || offloads(zero, "offload_param")) to.note(on_gpus);
}

void set_strategy(Importer& to, const std::string& strategy) {
  if (strategy == "full_shard" || strategy == "1") return to.set("parallel.shard", "full");
  if (strategy == "shard_grad_op" || strategy == "2") return to.set("parallel.shard", "gradients");
  if (strategy == "no_shard" || strategy == "3") return to.ignore("off");
  const bool full = strategy == "hybrid_shard" || strategy == "4", gradients = strategy == "hybrid_shard_zero2" || strategy == "5";
  if (!full && !gradients) return to.refuse(by_hand);
  to.set("parallel.shard", full ? "full" : "gradients");
  to.note(groups);
}

// "full_shard auto_wrap", a list of such words, or a plain yes.
std::vector<std::string> words_of(const YAML::Node& value) {
  std::vector<std::string> words;
  if (value.IsSequence()) {
    for (const YAML::Node& one : value) words.push_back(import_word(one));
    return words;
  }
  for (const std::string& word : base::split(import_word(value), ' '))
    if (!word.empty()) words.push_back(word);
  return words;
}

}  // namespace

void import_zero(Importer& to, const YAML::Node& value) { set_zero(to, value); }

// The file itself where it is there; else the stage that its name tells, as in deepspeed_configs/zero3_bf16.json.
void import_deepspeed(Importer& to, const YAML::Node& value) {
  if (import_is_off(value)) return to.ignore("off");
  if (value.IsMap()) return set_zero(to, value["zero_optimization"]);
  const std::filesystem::path path = import_text(value);
  std::error_code error;
  if (std::filesystem::is_regular_file(path, error)) {
    try {
      return set_zero(to, YAML::LoadFile(path.string())["zero_optimization"]);
    } catch (const YAML::Exception&) {
      return to.refuse("its file is not JSON");
    }
  }
  const std::string name = base::lower(path.filename().string());
  const std::size_t at = name.find("zero");
  if (at == name.npos || at + 4 >= name.size() || name[at + 4] < '1' || name[at + 4] > '3') return to.refuse(by_hand);
  set_stage(to, name.substr(at + 4, 1));
  if (name.find("offload") != name.npos) to.note(on_gpus);
}

void import_fsdp(Importer& to, const YAML::Node& value) {
  if (import_is_off(value)) return to.ignore("off");
  std::vector<std::string> words = words_of(value);
  const auto take = [&](std::string_view word) { return std::erase(words, std::string(word)) > 0; };
  take("auto_wrap");
  const bool offload = take("offload");
  if (words.size() > 1) return to.refuse(by_hand);
  const bool plain = words.empty() || read_boolean(words.front()).value_or(false);
  set_strategy(to, plain ? "full_shard" : words.front());
  if (offload) to.note(on_gpus);
}

void import_fsdp_config(Importer& to, const YAML::Node& value) {
  if (import_is_off(value) || !value.IsMap()) return to.ignore("off");
  const auto find = [&](std::initializer_list<const char*> names) {
    for (const char* name : names)
      if (value[name] && !import_is_off(value[name])) return import_word(value[name]);
    return std::string();
  };
  const std::string strategy = find({"fsdp_sharding_strategy", "sharding_strategy"});
  const YAML::Node again = value["fsdp_reshard_after_forward"] ? value["fsdp_reshard_after_forward"] : value["reshard_after_forward"];
  if (!strategy.empty())
    set_strategy(to, strategy);
  else if (again && read_boolean(import_text(again)))
    to.set("parallel.shard", *read_boolean(import_text(again)) ? "full" : "gradients");
  else if (again)
    set_strategy(to, import_word(again));  // accelerate's first version names a strategy here
  else if (base::lower(to.text("distributed_type")) == "fsdp")
    to.set("parallel.shard", "full");
  else
    to.ignore(to.assigned("parallel.shard").empty() ? "only read with fsdp" : "parallel.shard");
  if (read_boolean(find({"fsdp_offload_params", "offload_params", "cpu_offload"})).value_or(false)) to.note(on_gpus);
}

// Among how many devices a model is cut: those of a group here, -1 being all of them.
void import_shard_size(Importer& to, const YAML::Node& value) {
  if (import_is_off(value) || import_text(value) == "1") return to.ignore("off");
  for (const char* section : {"fsdp", "fsdp_config", "deepspeed"})
    if (to.has(section)) return to.ignore("parallel.shard, between the ranks of a group");
  to.set("parallel.shard", "full");
}

void import_groups(Importer& to, const YAML::Node& value) {
  if (import_is_off(value) || import_text(value) == "1") return to.ignore("off");
  to.set("parallel.replicate", import_text(value));
}

// accelerate's section: the stage itself, or the file that has it.
void import_deepspeed_config(Importer& to, const YAML::Node& value) {
  if (import_is_off(value) || !value.IsMap()) return to.ignore("off");
  if (value["deepspeed_config_file"]) return import_deepspeed(to, value["deepspeed_config_file"]);
  set_stage(to, value["zero_stage"] ? import_text(value["zero_stage"]) : "2");
  for (const char* device : {"offload_optimizer_device", "offload_param_device"})
    if (value[device] && import_word(value[device]) != "none") return to.note(on_gpus);
}

}  // namespace lockstep::config
