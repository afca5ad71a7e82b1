// What FSDP calls sharding: its strategies, and the switches of its second version.
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <array>
#include <filesystem>

#include "base/text.h"
#include "config/import/sharding/shared.h"
#include "config/table/value.h"

namespace lockstep::config {
namespace {

constexpr std::string_view groups = "set parallel.replicate to the number of groups, such as one per machine";
constexpr std::string_view units = "every layer is a unit, gathered ahead of its use";

// The groups of a strategy that has them are machines, unless the file counts them.
void set_groups(Importer& to) {
  for (const char* key : {"dp_replicate_size", "data_parallel_replicate_dim"})
    if (to.has(key)) return;
  if (&to.program() != &accelerate()) return to.note(groups);
  if (const std::string machines = to.text("num_machines"); !machines.empty() && machines != "1") to.set("parallel.replicate", machines);
}

const std::vector<std::string>& strategies() {
  static const std::vector<std::string> names = {"full_shard", "shard_grad_op", "no_shard", "hybrid_shard", "hybrid_shard_zero2"};
  return names;
}
bool is_strategy(const std::string& word) { return std::find(strategies().begin(), strategies().end(), word) != strategies().end(); }

std::string no_strategy(const std::string& word) {
  std::vector<std::string> words = strategies();
  words.insert(words.end(), {"auto_wrap", "offload"});
  const auto best = base::nearest(word, words);
  return best ? fmt::format("{} is not a strategy of FSDP; did you mean {}?", word, *best) : std::string(say_by_hand);
}

void set_strategy(Importer& to, std::string strategy) {
  if (strategy.starts_with('_')) strategy.erase(0, 1);
  if (strategy == "full_shard" || strategy == "1") return to.set("parallel.shard", "full");
  if (strategy == "shard_grad_op" || strategy == "2") return to.set("parallel.shard", "gradients");
  if (strategy == "no_shard" || strategy == "3") return to.ignore("off");
  const bool full = strategy == "hybrid_shard" || strategy == "4", gradients = strategy == "hybrid_shard_zero2" || strategy == "5";
  if (!full && !gradients) return to.refuse(no_strategy(strategy));
  to.set("parallel.shard", full ? "full" : "gradients");
  set_groups(to);
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

// A key of a section under its own name or as accelerate has it, with fsdp_ before it.
YAML::Node either(const YAML::Node& section, const std::string& name) {
  for (const std::string& key : {"fsdp_" + name, name}) {
    if (const YAML::Node value = section[key]; value && !value.IsNull()) return value;
  }
  return YAML::Node(YAML::NodeType::Null);
}

bool of_version_2(const Importer& to, const YAML::Node& config) {
  const YAML::Node version = either(config, "version");
  return (version.IsNull() ? to.text("fsdp_version") : import_text(version)) == "2";
}

// The first version goes by the strategy, the second by whether weights are cut again after a layer's forward pass.
bool goes_by_reshard(const Importer& to, const YAML::Node& config) {
  if (either(config, "reshard_after_forward").IsNull()) return false;
  return of_version_2(to, config) || either(config, "sharding_strategy").IsNull();
}

// fsdp_config as a map, wherever it stands; nothing where there is none that can be read.
YAML::Node config_of(const Importer& to) {
  const YAML::Node value = to.file()["fsdp_config"];
  if (!value || value.IsMap()) return value ? value : YAML::Node(YAML::NodeType::Map);
  std::error_code error;
  if (!value.IsScalar() || !std::filesystem::is_regular_file(value.Scalar(), error)) return YAML::Node(YAML::NodeType::Map);
  try {
    const YAML::Node file = YAML::LoadFile(value.Scalar());
    return file.IsMap() ? file : YAML::Node(YAML::NodeType::Map);
  } catch (const YAML::Exception&) {
    return YAML::Node(YAML::NodeType::Map);
  }
}

void strategy_row(Importer& to, const YAML::Node& value) {
  if (import_is_off(value)) return to.ignore("off");
  goes_by_reshard(to, to.section()) ? to.ignore("reshard_after_forward says it") : set_strategy(to, import_word(value));
}

void reshard_row(Importer& to, const YAML::Node& value) {
  if (!goes_by_reshard(to, to.section())) return to.ignore("sharding_strategy says it");
  const std::string text = import_text(value);
  if (const auto again = read_boolean(text)) return to.set("parallel.shard", *again ? "full" : "gradients");
  if (const auto ranks = base::parse_integer(text); ranks && *ranks > 1) {
    to.set("parallel.shard", "full");
    return to.note(
        fmt::format("weights are gathered from all ranks. For groups of {} set parallel.replicate to their number: a group then holds "
                    "optimizer states as well",
                    *ranks));
  }
  set_strategy(to, import_word(value));  // accelerate's first version names a strategy here
}

// The last part of a key, without the fsdp_ that accelerate writes before it.
std::string plain_key(const Importer& to) {
  std::string key = to.key().substr(to.key().rfind('.') + 1);
  return key.starts_with("fsdp_") ? key.substr(5) : key;
}

constexpr std::array config_rows = std::to_array<ImportRow>({
    converted("sharding_strategy", "parallel.shard", strategy_row),
    converted("reshard_after_forward", "parallel.shard", reshard_row),
    converted("activation_checkpointing", "trainer.recompute", import_fsdp_checkpointing),
    noted("offload_params", stays_on_gpus),
    noted("cpu_offload", stays_on_gpus),
    ignored("version", "both versions cut alike"),
    ignored("auto_wrap_policy", units),
    ignored("transformer_layer_cls_to_wrap", units),
    ignored("min_num_params", units),
    ignored("backward_prefetch", units),
    ignored("backward_prefetch_policy", units),
    ignored("forward_prefetch", units),
    ignored("limit_all_gathers", units),
    ignored("use_orig_params", units),
    ignored("sync_module_states", "ranks read the model's folder once between them"),
    ignored("cpu_ram_efficient_loading", "ranks read the model's folder once between them"),
    ignored("state_dict_type", "a checkpoint is the same files whatever the cut"),
    ignored("final_state_dict_type", "a checkpoint is the same files whatever the cut"),
    ignored("mixed_precision_policy", "model.dtype and parallel.reduce_dtype"),
    ignored("xla*", "GPUs and CPUs only"),
});

void config_row(Importer& to, const YAML::Node& value) {
  if (const ImportRow* row = import_row(config_rows, plain_key(to))) return to.apply(*row, value);
  import_ignore_unless_near(to,
                            {"sharding_strategy", "reshard_after_forward", "activation_checkpointing", "offload_params", "cpu_offload"});
}
constexpr std::array any_config_row = std::to_array<ImportRow>({converted("*", "", config_row)});

// Axolotl and accelerate shard with this section alone; TrainingArguments read it beside fsdp.
bool shards_by_itself(const Importer& to) {
  if (&to.program() == &axolotl()) return !to.has("fsdp");
  return base::lower(to.text("distributed_type")) == "fsdp";
}

// Why nothing is read of the section; "" where it is.
std::string_view unread(const Importer& to, const YAML::Node& config) {
  if (to.has("distributed_type") && base::lower(to.text("distributed_type")) != "fsdp") return "only read with distributed_type: FSDP";
  if (shards_by_itself(to)) return {};
  const bool says = !either(config, "sharding_strategy").IsNull() || !either(config, "reshard_after_forward").IsNull();
  return (to.has("fsdp") ? import_is_off(to.file()["fsdp"]) : !says) ? "only read with fsdp" : std::string_view();
}

}  // namespace

void import_fsdp(Importer& to, const YAML::Node& value) {
  if (import_is_off(value)) return to.ignore("off");
  if (value.IsMap()) return to.refuse("must be true or a strategy; a map is fsdp_config");
  std::vector<std::string> words = words_of(value);
  const auto take = [&](std::string_view word) { return std::erase(words, std::string(word)) > 0; };
  take("auto_wrap");
  const bool offload = take("offload");
  if (words.size() > 1) {
    const auto wrong = std::find_if(words.begin(), words.end(), [](const std::string& word) { return !is_strategy(word); });
    return wrong == words.end() ? to.refuse(say_by_hand) : to.refuse(no_strategy(*wrong));
  }
  const YAML::Node config = config_of(to);
  const bool plain = words.empty() || read_boolean(words.front()).value_or(false);
  const bool elsewhere =
      goes_by_reshard(to, config) ? plain || words.front() == "full_shard" : plain && !either(config, "sharding_strategy").IsNull();
  elsewhere ? to.ignore("fsdp_config says how far") : set_strategy(to, plain ? "full_shard" : words.front());
  if (offload) to.note(stays_on_gpus);
}

void import_fsdp_config(Importer& to, const YAML::Node& value) {
  if (import_is_off(value)) return to.ignore("off");
  const std::string key = to.key();
  std::string place = key;
  YAML::Node config = value;
  if (!value.IsMap()) {
    const std::filesystem::path path = scalar(value);
    std::error_code error;
    if (!std::filesystem::is_regular_file(path, error)) return to.refuse("must be a map, or a JSON file that is here");
    const auto other = import_other_file(to, path);
    if (!other) return;
    config.reset(*other);
    place = fmt::format("{}[{}]", key, path.filename().string());
  }
  if (const std::string_view why = unread(to, config); !why.empty()) return to.ignore(why);
  value.IsMap() ? to.walk(place, config, any_config_row) : to.walk_other_file(place, config, any_config_row);
  if (!shards_by_itself(to) || !either(config, "sharding_strategy").IsNull() || !either(config, "reshard_after_forward").IsNull()) return;
  to.enter(key, value);
  to.set("parallel.shard", "full");
}

// The switch of FSDP's section; one that forbids recomputing is stronger.
void import_fsdp_checkpointing(Importer& to, const YAML::Node& value) {
  if (import_is_off(value)) return to.ignore("off");
  for (const ImportRow& row : to.program().rows) {
    if (row.action == ImportRow::Action::flag && row.text == "trainer.recompute" && to.on(row.theirs))
      return to.ignore(fmt::format("{} says otherwise", row.theirs));
  }
  if (!to.assigned("trainer.recompute").empty()) return to.ignore("trainer.recompute is said already");
  to.set("trainer.recompute", "blocks");
}

std::optional<YAML::Node> import_other_file(Importer& to, const std::filesystem::path& path) {
  try {
    YAML::Node file = YAML::LoadFile(path.string());
    if (file.IsMap()) return file;
  } catch (const YAML::Exception&) {
  }
  to.refuse("its file is not JSON");
  return std::nullopt;
}

void import_ignore_unless_near(Importer& to, std::initializer_list<std::string_view> deciding) {
  const std::string name = plain_key(to);
  const std::vector<std::string> names(deciding.begin(), deciding.end());
  const auto best = base::nearest(name, names);
  best ? to.refuse(fmt::format("not a key that is known; did you mean {}?", *best))
       : to.ignore("not a key that is known; parallel.shard says what is cut");
}

// Among how many devices a model is cut: those of a group here, -1 being all of them.
void import_shard_size(Importer& to, const YAML::Node& value) {
  if (import_is_off(value) || import_text(value) == "1") return to.ignore("off");
  for (const char* section : {"fsdp", "fsdp_config", "deepspeed", "fsdp_reshard_after_forward"})
    if (to.has(section)) return to.ignore("parallel.shard, between the ranks of a group");
  to.set("parallel.shard", "full");
}

void import_groups(Importer& to, const YAML::Node& value) {
  if (import_is_off(value) || import_text(value) == "1") return to.ignore("off");
  to.set("parallel.replicate", import_text(value));
}

}  // namespace lockstep::config
