// What DeepSpeed calls sharding: the stages of ZeRO, in a file of its own, in a map, or in the name of a file.
#include <yaml-cpp/yaml.h>

#include <array>
#include <cctype>
#include <filesystem>

#include "base/text.h"
#include "config/import/sharding/shared.h"

namespace lockstep::config {
namespace {

constexpr std::string_view tuning = "parallel.shard has nothing to tune";
constexpr std::string_view plain_numbers = "numbers travel between ranks as they are, and none is quantized for it";
constexpr std::string_view stage_3_only = "only read with stage 3";

void set_stage(Importer& to, std::string_view stage) {
  if (stage == "0") return to.ignore("off");
  if (stage == "1") return to.set("parallel.shard", "optimizer");
  if (stage == "2") return to.set("parallel.shard", "gradients");
  if (stage == "3") return to.set("parallel.shard", "full");
  to.refuse("there are stages 0 to 3");
}
void set_stage_of(Importer& to, const YAML::Node& value) { set_stage(to, import_text(value)); }

bool cuts_weights(const Importer& to) {
  const YAML::Node stage = to.section()["stage"];
  return stage && import_text(stage) == "3";
}

void offload(Importer& to, const YAML::Node& value) {
  const YAML::Node device = value.IsMap() ? value["device"] : value;
  !device || import_is_off(device) ? to.ignore("off") : to.note(stays_on_gpus);
}

// All ranks, where the file says how many: accelerate's count, or what DeepSpeed's three batch sizes give.
std::optional<std::int64_t> world_of(const Importer& to) {
  const auto number = [&](const char* key) { return base::parse_integer(to.text(key)); };
  if (const auto ranks = number("num_processes")) return ranks;
  const auto all = number("train_batch_size"), one = number("train_micro_batch_size_per_gpu"),
             times = number("gradient_accumulation_steps");
  if (!all || !one || !times || *one < 1 || *times < 1 || *all % *one != 0 || *all / *one % *times != 0) return std::nullopt;
  return *all / *one / *times;
}

void set_groups_of(Importer& to, std::int64_t size) {
  const auto world = world_of(to);
  if (!world) return to.note(fmt::format("set parallel.replicate to the number of groups of {} ranks: shards lie within a group", size));
  if (*world % size != 0) return to.refuse(fmt::format("{} ranks cannot be groups of {}", *world, size));
  *world == size ? to.ignore("all ranks are one group") : to.set("parallel.replicate", std::to_string(*world / size));
}

void mics(Importer& to, const YAML::Node& value) {
  const auto size = base::parse_integer(import_text(value));
  if (size && *size <= 0) return to.ignore("off");
  if (!size) return to.refuse("must be a number of ranks");
  cuts_weights(to) ? set_groups_of(to, *size) : to.ignore(stage_3_only);
}

void hierarchical_partitions(Importer& to, const YAML::Node& value) {
  const auto size = base::parse_integer(import_text(value));
  if (size && *size <= 1) return to.ignore("off");
  if (!size) return to.refuse("must be a number of ranks");
  if (!cuts_weights(to)) return to.ignore(stage_3_only);
  set_groups_of(to, *size);
  if (world_of(to) != *size)
    to.note("with parallel.replicate a group holds optimizer states as well, which takes more memory than ZeRO++ does");
}

constexpr std::array zero_rows = std::to_array<ImportRow>({
    converted("stage", "parallel.shard", set_stage_of),
    converted("mics_shard_size", "parallel.replicate", mics),
    ignored("mics_hierarchical_params_gather", tuning),
    converted("zero_hpz_partition_size", "parallel.replicate", hierarchical_partitions),
    noted("zero_quantized_weights", plain_numbers),
    noted("zero_quantized_nontrainable_weights", "frozen weights are quantized by model.load_in_4bit or model.load_in_8bit"),
    noted("zero_quantized_gradients", plain_numbers),
    ignored("zeropp_loco_param", "only read with zero_quantized_gradients"),
    converted("offload_optimizer", "", offload),
    converted("offload_param", "", offload),
    noted("cpu_offload", stays_on_gpus),
    noted("cpu_offload_param", stays_on_gpus),
    noted("cpu_offload_params", stays_on_gpus),
    ignored("cpu_offload_use_pin_memory", "only read with an offload"),
    ignored("elastic_checkpoint", "a run resumes on another number of GPUs by itself"),
    ignored("load_from_fp32_weights", "a checkpoint holds the masters"),
    ignored("gather_16bit_weights_on_model_save", "a saved model is whole, whatever the cut"),
    ignored("stage3_gather_16bit_weights_on_model_save", "a saved model is whole, whatever the cut"),
    ignored("stage3_gather_fp16_weights_on_model_save", "a saved model is whole, whatever the cut"),
    ignored("reduce_bucket_size", tuning),
    ignored("reduce_scatter", tuning),
    ignored("use_multi_rank_bucket_allreduce", tuning),
    ignored("contiguous_gradients", tuning),
    ignored("allgather_partitions", tuning),
    ignored("allgather_bucket_size", tuning),
    ignored("overlap_comm", tuning),
    ignored("sub_group_size", tuning),
    ignored("round_robin_gradients", tuning),
    ignored("ignore_unused_parameters", "parallel.find_unused_parameters"),
    ignored("legacy_stage1", tuning),
    ignored("memory_efficient_linear", own_kernels),
    ignored("pipeline_loading_checkpoint", tuning),
    ignored("override_module_apply", tuning),
    ignored("log_trace_cache_warnings", tuning),
    ignored("enable_sanity_checks", tuning),
    ignored("save_muon_momentum_buffer_in_memory", tuning),
    ignored("leaf_module", tuning),
    ignored("prefetch_bucket_size", tuning),
    ignored("param_persistence_threshold", tuning),
    ignored("model_persistence_threshold", tuning),
    ignored("max_live_parameters", tuning),
    ignored("max_reuse_distance", tuning),
    ignored("module_granularity_threshold", tuning),
    ignored("use_all_reduce_for_fetch_params", tuning),
    ignored("stage3_prefetch_bucket_size", tuning),
    ignored("stage3_param_persistence_threshold", tuning),
    ignored("stage3_model_persistence_threshold", tuning),
    ignored("stage3_max_live_parameters", tuning),
    ignored("stage3_max_reuse_distance", tuning),
    ignored("stage3_module_granularity_threshold", tuning),
    ignored("stage3_use_all_reduce_for_fetch_params", tuning),
    ignored("stage3_allgather_sequential", tuning),
});

void import_zero_at(Importer& to, const std::string& place, const YAML::Node& zero) {
  to.enter(place, zero);
  if (import_is_off(zero)) return to.ignore("off");
  if (!zero.IsMap()) return to.refuse("must be a map with a stage, such as {stage: 3}");
  to.walk(place, zero, zero_rows, "DeepSpeed");
  if (zero["stage"]) return;
  to.enter(place + ".stage", YAML::Node(""));
  to.ignore("off: DeepSpeed's default is stage 0");
}

// Of a DeepSpeed file that another names, only what it cuts is read: that program refuses values that are not its own.
std::vector<ImportRow> zero_alone() {
  std::vector<ImportRow> rows = {converted("zero_optimization", "parallel.shard", import_zero)};
  for (const ImportRow& row : deepspeed().rows) rows.push_back(ignored(row.theirs, "only zero_optimization is read here"));
  return rows;
}

void import_deepspeed_map(Importer& to, const std::string& place, const YAML::Node& map, bool other_file) {
  static const std::vector<ImportRow> rows = zero_alone();
  other_file ? to.walk_other_file(place, map, rows, "DeepSpeed") : to.walk(place, map, rows, "DeepSpeed");
  if (map["zero_optimization"]) return;
  to.enter(place + ".zero_optimization", YAML::Node(""));
  to.ignore("off");
}

// The stage in names such as zero3_bf16.json, ds_z3_offload_config.json and stage2.json; 0 characters where there is none.
std::string stage_in_name(const std::string& name) {
  for (const std::string_view word : {"zero", "z", "stage"}) {
    for (std::size_t at = name.find(word); at != name.npos; at = name.find(word, at + 1)) {
      std::size_t digit = at + word.size();
      const bool inside_a_word = word == "z" && at > 0 && std::isalnum(static_cast<unsigned char>(name[at - 1])) != 0;
      if (digit < name.size() && (name[digit] == '_' || name[digit] == '-')) ++digit;
      if (inside_a_word || digit >= name.size() || name[digit] < '0' || name[digit] > '3') continue;
      if (digit + 1 < name.size() && std::isdigit(static_cast<unsigned char>(name[digit + 1])) != 0) continue;
      return name.substr(digit, 1);
    }
  }
  return {};
}

void config_file(Importer& to, const YAML::Node& value) { import_deepspeed(to, value); }
void stage_beside(Importer& to, const YAML::Node& value) {
  to.section()["deepspeed_config_file"] ? to.ignore("deepspeed_config_file says it") : set_stage_of(to, value);
}
template <const char* ours>
void unless_auto(Importer& to, const YAML::Node& value) {
  import_word(value) == "auto" ? to.ignore("left to the training arguments") : to.set(ours, value);
}
constexpr char accumulation[] = "trainer.gradient_accumulation", clipping[] = "trainer.max_grad_norm";
void unknown_key(Importer& to, const YAML::Node&) { import_ignore_unless_near(to, {"zero_stage", "deepspeed_config_file"}); }

constexpr std::array accelerate_deepspeed_rows = std::to_array<ImportRow>({
    converted("deepspeed_config_file", "parallel.shard", config_file),
    converted("zero_stage", "parallel.shard", stage_beside),
    converted("offload_optimizer_device", "", offload),
    converted("offload_param_device", "", offload),
    converted("gradient_accumulation_steps", "trainer.gradient_accumulation", unless_auto<accumulation>),
    converted("gradient_clipping", "trainer.max_grad_norm", unless_auto<clipping>),
    ignored("offload_optimizer_nvme_path", "only read with an offload"),
    ignored("offload_param_nvme_path", "only read with an offload"),
    ignored("zero3_init_flag", "no rank ever holds the whole model"),
    ignored("zero3_save_16bit_model", "a saved model is whole, whatever the cut"),
    ignored("deepspeed_*", launcher),
    converted("*", "", unknown_key),
});

}  // namespace

void import_zero(Importer& to, const YAML::Node& value) { import_zero_at(to, to.key(), value); }

// The file itself where it is there; else the stage that its name tells.
void import_deepspeed(Importer& to, const YAML::Node& value) {
  if (import_is_off(value)) return to.ignore("off");
  const std::string key = to.key();
  if (value.IsMap()) return import_deepspeed_map(to, key, value, false);
  if (!value.IsScalar()) return to.refuse("must be a file or a map");
  const std::filesystem::path path = value.Scalar();
  std::error_code error;
  if (std::filesystem::is_regular_file(path, error)) {
    const auto other = import_other_file(to, path);
    if (other) import_deepspeed_map(to, fmt::format("{}[{}]", key, path.filename().string()), *other, true);
    return;
  }
  const std::string name = base::lower(path.filename().string()), stage = stage_in_name(name);
  if (stage.empty()) return to.refuse(say_by_hand);
  set_stage(to, stage);
  if (name.find("offload") != name.npos) to.note(stays_on_gpus);
}

// accelerate's section: the stage itself, or the file that has it.
void import_deepspeed_config(Importer& to, const YAML::Node& value) {
  if (import_is_off(value)) return to.ignore("off");
  if (!value.IsMap()) return to.refuse("must be a map");
  if (to.has("distributed_type") && base::lower(to.text("distributed_type")) != "deepspeed")
    return to.ignore("only read with distributed_type: DEEPSPEED");
  const std::string key = to.key();
  to.walk(key, value, accelerate_deepspeed_rows);
  if (value["zero_stage"] || value["deepspeed_config_file"]) return;
  to.enter(key + ".zero_stage", YAML::Node(""));
  set_stage(to, "2");
}

}  // namespace lockstep::config
