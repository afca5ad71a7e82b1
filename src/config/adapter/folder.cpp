// adapter_config.json, in and out.
#include "config/adapter/folder.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <set>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/files.h"
#include "base/json.h"
#include "base/text.h"
#include "config/adapter/fit.h"
#include "config/table/option.h"
#include "config/table/value.h"
#include "layout/adapters/adapter_targets.h"

namespace lockstep::config {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

// Keys that are read, or that say nothing about the adapter's numbers.
constexpr std::string_view known_keys[] = {"alpha_pattern",
                                           "auto_mapping",
                                           "base_model_name_or_path",
                                           "bias",
                                           "corda_config",
                                           "eva_config",
                                           "exclude_modules",
                                           "fan_in_fan_out",
                                           "inference_mode",
                                           "init_lora_weights",
                                           "layers_pattern",
                                           "layers_to_transform",
                                           "loftq_config",
                                           "lora_alpha",
                                           "lora_dropout",
                                           "lora_ga_config",
                                           "megatron_core",
                                           "modules_to_save",
                                           "peft_type",
                                           "peft_version",
                                           "qalora_group_size",
                                           "r",
                                           "rank_pattern",
                                           "revision",
                                           "runtime_config",
                                           "target_modules",
                                           "task_type",
                                           "unsloth_fixed",
                                           "use_dora",
                                           "use_rslora"};

struct Method {
  std::string_view kind, what;
  bool merges = true;
};
constexpr Method other_methods[] = {
    {"ADALORA", "AdaLoRA, a singular value decomposition with ranks of its own"},
    {"ADAPTION_PROMPT", "an adaption prompt (LLaMA-Adapter)", false},
    {"BOFT", "a product of butterfly rotations"},
    {"CPT", "context-aware prompt tuning", false},
    {"FOURIERFT", "FourierFT, spectral coefficients"},
    {"HRA", "Householder reflections"},
    {"IA3", "IA3, factors on activations"},
    {"LN_TUNING", "tuned norms"},
    {"LOHA", "LoHa, a Hadamard product of low ranks"},
    {"LOKR", "LoKr, a Kronecker product"},
    {"MULTITASK_PROMPT_TUNING", "multitask prompt tuning", false},
    {"OFT", "OFT, orthogonal rotations"},
    {"POLY", "Poly, several adapters with a router", false},
    {"PREFIX_TUNING", "prefix tuning", false},
    {"PROMPT_TUNING", "prompt tuning", false},
    {"P_TUNING", "P-tuning", false},
    {"RANDLORA", "RandLoRA, random bases"},
    {"TRAINABLE_TOKENS", "single trained tokens"},
    {"VBLORA", "VB-LoRA, a shared bank of vectors"},
    {"VERA", "VeRA, shared random matrices"},
    {"XLORA", "X-LoRA, a mixture of adapters", false},
};

class AdapterReader {
 public:
  explicit AdapterReader(const fs::path& folder) : file_((folder / "adapter_config.json").string()) {
    if (!fs::exists(file_)) {
      throw base::usage_error("lora", "{} is no PEFT adapter: it has no adapter_config.json. Give the folder that holds it.",
                              folder.string());
    }
    try {
      json_ = base::parse_json(base::read_text(file_));
    } catch (const base::JsonError& mistake) {
      throw error(fmt::format("it is not a JSON object: {}", mistake.what()));
    }
    if (!json_.is_object()) throw error("it is not a JSON object");
  }

  std::string base() const { return text("base_model_name_or_path", ""); }

  LoraConfig read() {
    refuse_other_methods();
    refuse_what_is_not_built();
    LoraConfig lora;
    lora.enabled = true;
    lora.rank = static_cast<std::int64_t>(number("r", 8));
    if (lora.rank < 1 || lora.rank > 4096) throw error(fmt::format("r is {}; it must be from 1 to 4096", lora.rank));
    lora.alpha = number("lora_alpha", 8);
    if (!(lora.alpha > 0)) throw error(fmt::format("lora_alpha is {}; it must be above 0", lora.alpha));
    lora.dropout = number("lora_dropout", 0);
    if (!(lora.dropout >= 0 && lora.dropout < 1))
      throw error(fmt::format("lora_dropout is {}; it must be from 0 to below 1", lora.dropout));
    lora.rslora = boolean("use_rslora");
    lora.dora = boolean("use_dora");
    lora.target_modules = names("target_modules");
    if (lora.target_modules.empty()) throw error("target_modules is missing");
    lora.exclude_modules = names("exclude_modules");
    lora.modules_to_save = list("modules_to_save");
    lora.rank_pattern = exceptions("rank_pattern");
    lora.alpha_pattern = exceptions("alpha_pattern");
    lora.layers_to_transform = integers("layers_to_transform");
    for (const std::string& pattern : has("layers_pattern") ? list("layers_pattern") : std::vector<std::string>()) {
      if (pattern != "layers" && !pattern.empty())
        throw error(fmt::format("layers_pattern is {}; blocks of models here are called layers", pattern));
    }
    try {
      layout::AdapterTargets{lora};
    } catch (const base::UserError& mistake) {
      throw error(std::string(mistake.what()));
    }
    return lora;
  }

 private:
  base::UserError error(const std::string& what) const { return base::usage_error("lora", "{}: {}.", file_, what); }

  // What other methods are, for those who did not know that their adapter is one.
  void refuse_other_methods() const {
    const std::string kind = text("peft_type", "LORA");
    if (kind == "LORA") return;
    const auto known = std::find_if(std::begin(other_methods), std::end(other_methods), [&](const auto& one) { return one.kind == kind; });
    const bool found = known != std::end(other_methods);
    throw error(fmt::format(
        "peft_type is {}{}. LoRA adapters are read, with rsLoRA and DoRA. {}", kind, found ? fmt::format(", {}", known->what) : "",
        found && !known->merges ? "It cannot be folded into weights: use it with PEFT"
                                : "Fold it into its model with PEFT (merge_and_unload), and use the folder that it saves"));
  }

  void refuse_what_is_not_built() const {
    const std::string bias = text("bias", "none");
    if (bias != "none") throw error(fmt::format("bias is {}: the adapter trained biases too; adapters here have none", bias));
    if (has("init_lora_weights") && json_["init_lora_weights"].is_string()) {
      const std::string start = json_["init_lora_weights"].get<std::string>();
      for (const std::string_view changes : {"pissa", "olora", "corda", "loftq", "lora_ga"}) {
        if (!start.starts_with(changes)) continue;
        throw error(
            fmt::format("init_lora_weights is {}: the adapter belongs to base weights that {} changed, not to the model's own. Save it "
                        "again with save_pretrained(..., path_initial_model_for_weight_conversion=...)",
                        start, changes));
      }
    }
    for (const auto& [key, value] : json_.items()) {
      const bool off = value.is_null() || value == Json(false) || (value.is_structured() && value.empty()) || value == Json("");
      if (off || std::find(std::begin(known_keys), std::end(known_keys), key) != std::end(known_keys)) continue;
      throw error(fmt::format("{} is {}, which is not built", key, shown(value)));
    }
  }

  static std::string shown(const Json& value) {
    std::string text = value.dump(-1, ' ', true, Json::error_handler_t::replace);
    return text.size() > 60 ? text.substr(0, 57) + "..." : text;
  }
  bool has(const char* key) const { return json_.contains(key) && !json_[key].is_null(); }
  double number(const char* key, double otherwise) const {
    if (!has(key)) return otherwise;
    if (!json_[key].is_number()) throw error(fmt::format("{} is {}, not a number", key, shown(json_[key])));
    return json_[key].get<double>();
  }
  bool boolean(const char* key) const {
    if (!has(key)) return false;
    if (!json_[key].is_boolean()) throw error(fmt::format("{} is {}, neither true nor false", key, shown(json_[key])));
    return json_[key].get<bool>();
  }
  std::string text(const char* key, const char* otherwise) const {
    if (!has(key)) return otherwise;
    if (!json_[key].is_string()) throw error(fmt::format("{} is {}, not a text", key, shown(json_[key])));
    return json_[key].get<std::string>();
  }
  // A list of names, or a text, which PEFT takes for a regular expression.
  std::vector<std::string> names(const char* key) const {
    if (!has(key) || !json_[key].is_string()) return list(key);
    const std::string text = json_[key].get<std::string>();
    if (text.empty()) return {};
    return {base::lower(text) == "all-linear" ? "all-linear" : std::string(layout::regex_mark) + text};
  }
  std::vector<std::string> list(const char* key) const {
    if (!has(key)) return {};
    const Json& value = json_[key];
    if (value.is_string()) return {value.get<std::string>()};
    std::vector<std::string> all;
    if (!value.is_array()) throw error(fmt::format("{} is {}, not a list of names", key, shown(value)));
    for (const Json& one : value) {
      if (!one.is_string() || one.get_ref<const std::string&>().starts_with(layout::regex_mark))
        throw error(fmt::format("{} holds {}, which is no name", key, shown(one)));
      all.push_back(one.get<std::string>());
    }
    std::sort(all.begin(), all.end());  // PEFT writes a set, in any order
    return all;
  }
  // {"q_proj": 8} as "q_proj=8", in the file's order: the first that matches counts.
  std::vector<std::string> exceptions(const char* key) const {
    if (!has(key)) return {};
    if (!json_[key].is_object()) throw error(fmt::format("{} is {}, not names with numbers", key, shown(json_[key])));
    std::vector<std::string> all;
    for (const auto& [name, value] : json_[key].items()) {
      if (!value.is_number()) throw error(fmt::format("{} gives {} the value {}, not a number", key, name, shown(value)));
      all.push_back(fmt::format("{}={}", name, value.dump()));
    }
    return all;
  }
  std::vector<std::int64_t> integers(const char* key) const {
    if (!has(key)) return {};
    const Json& value = json_[key];
    if (value.is_number_unsigned()) return {value.get<std::int64_t>()};
    std::vector<std::int64_t> all;
    const bool list = value.is_array() && std::all_of(value.begin(), value.end(), [](const Json& one) { return one.is_number_unsigned(); });
    if (!list) throw error(fmt::format("{} is {}, not a list of block numbers", key, shown(value)));
    for (const Json& one : value) all.push_back(one.get<std::int64_t>());
    return all;
  }

  std::string file_;
  Json json_;
};

Json list_or_null(const auto& items) { return items.empty() ? Json(nullptr) : Json(items); }

// A list, or the text that PEFT takes for a regular expression.
Json names_json(const std::vector<std::string>& names) {
  if (names.size() == 1 && names[0].starts_with(layout::regex_mark)) return names[0].substr(layout::regex_mark.size());
  return names;
}

Json whole_if_it_is(double value) {
  return value == std::trunc(value) && std::abs(value) < 1e15 ? Json(static_cast<std::int64_t>(value)) : Json(value);
}

// "q_proj=8" as {"q_proj": 8}.
Json exceptions_json(const std::vector<std::string>& exceptions) {
  Json json = Json::object();
  for (const std::string& one : exceptions) {
    const std::size_t equals = one.rfind('=');
    const auto value = equals == one.npos ? std::nullopt : base::parse_number(one.substr(equals + 1));
    base::check(value.has_value(), "exceptions were read before they are written");
    json[one.substr(0, equals)] = whole_if_it_is(*value);
  }
  return json;
}

}  // namespace

LoraConfig read_adapter_folder(const fs::path& folder) { return AdapterReader(folder).read(); }

std::string adapter_base_name(const fs::path& folder) { return AdapterReader(folder).base(); }

std::string adapter_base(const fs::path& folder) {
  const std::string base = adapter_base_name(folder);
  if (!base.empty() && fs::exists(fs::path(base) / "config.json")) return base;
  throw base::usage_error("lora", "{} belongs to {}, which is no model folder here. Say where the model is: --model DIR.", folder.string(),
                          base.empty() ? "a model that it does not name" : base);
}

std::string adapter_config_text(const LoraConfig& lora, const std::string& base) {
  std::vector<std::string> targets;
  for (const std::string& target : lora.target_modules) {
    if (target != "all-linear") {
      targets.push_back(target);
      continue;
    }
    targets = {"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"};
    break;
  }
  const double alpha = lora.alpha > 0 ? lora.alpha : 2.0 * static_cast<double>(lora.rank);
  const Json json = {{"base_model_name_or_path", base},
                     {"bias", "none"},
                     {"exclude_modules", lora.exclude_modules.empty() ? Json(nullptr) : names_json(lora.exclude_modules)},
                     {"fan_in_fan_out", false},
                     {"inference_mode", true},
                     {"init_lora_weights", true},
                     {"layers_pattern", nullptr},
                     {"layers_to_transform", list_or_null(lora.layers_to_transform)},
                     {"lora_alpha", whole_if_it_is(alpha)},
                     {"lora_dropout", lora.dropout},
                     {"modules_to_save", list_or_null(lora.modules_to_save)},
                     {"peft_type", "LORA"},
                     {"r", lora.rank},
                     {"rank_pattern", exceptions_json(lora.rank_pattern)},
                     {"alpha_pattern", exceptions_json(lora.alpha_pattern)},
                     {"revision", nullptr},
                     {"target_modules", names_json(targets)},
                     {"task_type", "CAUSAL_LM"},
                     {"use_dora", lora.dora},
                     {"use_rslora", lora.rslora}};
  return json.dump(2) + "\n";
}

namespace {

// Sorted, and all-linear by the names that it stands for: PEFT writes those.
std::vector<std::string> spelled_out(const std::vector<std::string>& targets) {
  std::set<std::string> names(targets.begin(), targets.end());
  if (names.erase("all-linear") > 0) names.insert({"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"});
  return {names.begin(), names.end()};
}

}  // namespace

std::vector<std::string> follow_adapter_folder(Settings& settings) {
  RunConfig& config = settings.values;
  if (config.lora.adapters.empty()) return {};
  for (std::string& folder : config.lora.adapters) {
    std::error_code error;
    folder = fs::absolute(folder, error).lexically_normal().string();  // ranks and later commands may be started elsewhere
  }
  RunConfig there;
  for (const std::string& folder : config.lora.adapters) there.lora = read_adapter_folder(folder);
  const std::string file = (fs::path(config.lora.adapters.back()) / "adapter_config.json").string();
  // How it is trained on is a new run's own affair; what it is, the folder says.
  constexpr std::array own_keys = {"lora.adapters", "lora.b_lr_ratio", "lora.dropout", "lora.enabled"};
  std::vector<std::string> problems;
  for (const Option& option : lora_options()) {
    if (std::find(own_keys.begin(), own_keys.end(), option.key) != own_keys.end()) continue;
    const Value mine = option.get(config), theirs = option.get(there);
    const Source& source = settings.source(option.key);
    const bool agrees = option.key == "lora.target_modules"
                            ? spelled_out(config.lora.target_modules) == spelled_out(there.lora.target_modules)
                            : mine == theirs;
    if (source.origin != Origin::standard && source.origin != Origin::derived && !agrees) {
      problems.push_back(fmt::format("{}: {} = {}, but {} says {}. Remove {}: the folder gives the adapter's shape.", source.where,
                                     option.key, write_value(option, mine), file, write_value(option, theirs), option.key));
      continue;
    }
    option.set(config, theirs);
    settings.sources[std::string(option.key)] = {Origin::derived, file};
  }
  config.lora.enabled = true;
  if (!problems.empty()) return problems;
  // A run file may leave the model to the command line: --model DIR.
  if (config.model.path.empty() && settings.source("model.num_layers").origin == Origin::standard) return problems;
  for (const std::string& folder : config.lora.adapters) {
    const bool last = &folder == &config.lora.adapters.back();
    check_adapter_fits(folder, config.model, last ? AdapterUse::go_on : AdapterUse::fold);
  }
  return problems;
}

}  // namespace lockstep::config
