// adapter_config.json, in and out.
#include "config/adapter_folder.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/files.h"
#include "base/text.h"
#include "config/option.h"
#include "config/value.h"

namespace lockstep::config {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

class AdapterReader {
 public:
  explicit AdapterReader(const fs::path& folder) : file_((folder / "adapter_config.json").string()) {
    if (!fs::exists(file_)) {
      throw base::usage_error("lora", "{} is no PEFT adapter: it has no adapter_config.json. Give the folder that holds it.",
                              folder.string());
    }
    json_ = Json::parse(base::read_text(file_), nullptr, /*allow_exceptions=*/false);
    if (!json_.is_object()) throw error("it is not a JSON object");
  }

  std::string base() const { return text("base_model_name_or_path", ""); }

  LoraConfig read() {
    const std::string kind = text("peft_type", "LORA");
    if (kind != "LORA") throw error(fmt::format("peft_type is {}; LORA is what Lockstep trains", kind));
    const std::string bias = text("bias", "none");
    if (bias != "none") throw error(fmt::format("bias is {}; adapters here have none", bias));
    for (const char* off : {"rank_pattern", "alpha_pattern", "megatron_config", "layer_replication", "layers_pattern", "lora_bias",
                            "target_parameters", "alora_invocation_tokens"}) {
      if (json_.contains(off) && !json_[off].is_null() && !json_[off].empty() && json_[off] != Json(false))
        throw error(fmt::format("{} is set; that is not built", off));
    }
    LoraConfig lora;
    lora.enabled = true;
    lora.rank = static_cast<std::int64_t>(number("r", 8));
    if (lora.rank < 1 || lora.rank > 4096) throw error(fmt::format("r is {}; it must be from 1 to 4096", lora.rank));
    lora.alpha = number("lora_alpha", 8);
    if (!(lora.alpha > 0)) throw error(fmt::format("lora_alpha is {}; it must be above 0", lora.alpha));
    lora.dropout = number("lora_dropout", 0);
    if (lora.dropout < 0 || lora.dropout >= 1) throw error(fmt::format("lora_dropout is {}; it must be from 0 to below 1", lora.dropout));
    lora.rslora = boolean("use_rslora");
    lora.dora = boolean("use_dora");
    lora.target_modules = words("target_modules");
    if (lora.target_modules.empty()) throw error("target_modules is missing");
    lora.modules_to_save = words("modules_to_save");
    for (const std::int64_t layer : integers("layers_to_transform")) lora.layers_to_transform.push_back(layer);
    return lora;
  }

 private:
  base::UserError error(const std::string& what) const { return base::usage_error("lora", "{}: {}.", file_, what); }

  bool has(const char* key) const { return json_.contains(key) && !json_[key].is_null(); }
  double number(const char* key, double otherwise) const {
    if (!has(key)) return otherwise;
    if (!json_[key].is_number()) throw error(fmt::format("{} is {}, not a number", key, json_[key].dump()));
    return json_[key].get<double>();
  }
  bool boolean(const char* key) const {
    if (!has(key)) return false;
    if (!json_[key].is_boolean()) throw error(fmt::format("{} is {}, neither true nor false", key, json_[key].dump()));
    return json_[key].get<bool>();
  }
  std::string text(const char* key, const char* otherwise) const {
    if (!has(key)) return otherwise;
    if (!json_[key].is_string()) throw error(fmt::format("{} is {}, not a text", key, json_[key].dump()));
    return json_[key].get<std::string>();
  }
  // A list of names. One text is a name, or a regular expression, which only PEFT reads.
  std::vector<std::string> words(const char* key) const {
    if (!has(key)) return {};
    const Json& value = json_[key];
    if (value.is_string()) {
      const std::string word = value.get<std::string>();
      if (word.find_first_of("*|()[]\\^$+?") != word.npos)
        throw error(fmt::format("{} is the regular expression {}; list the names instead", key, word));
      return {word};
    }
    std::vector<std::string> all;
    if (!value.is_array()) throw error(fmt::format("{} is {}, not a list of names", key, value.dump()));
    for (const Json& one : value) {
      if (!one.is_string()) throw error(fmt::format("{} holds {}, which is no name", key, one.dump()));
      all.push_back(one.get<std::string>());
    }
    std::sort(all.begin(), all.end());  // PEFT writes a set, in any order
    return all;
  }
  std::vector<std::int64_t> integers(const char* key) const {
    if (!has(key)) return {};
    const Json& value = json_[key];
    if (value.is_number_unsigned()) return {value.get<std::int64_t>()};
    std::vector<std::int64_t> all;
    const bool list = value.is_array() && std::all_of(value.begin(), value.end(), [](const Json& one) { return one.is_number_unsigned(); });
    if (!list) throw error(fmt::format("{} is {}, not a list of block numbers", key, value.dump()));
    for (const Json& one : value) all.push_back(one.get<std::int64_t>());
    return all;
  }

  std::string file_;
  Json json_;
};

Json list_or_null(const auto& items) { return items.empty() ? Json(nullptr) : Json(items); }

}  // namespace

LoraConfig read_adapter_folder(const fs::path& folder) { return AdapterReader(folder).read(); }

std::string adapter_base(const fs::path& folder) {
  const std::string base = AdapterReader(folder).base();
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
  Json json = {{"base_model_name_or_path", base},
               {"bias", "none"},
               {"fan_in_fan_out", false},
               {"inference_mode", true},
               {"init_lora_weights", true},
               {"layers_pattern", nullptr},
               {"layers_to_transform", list_or_null(lora.layers_to_transform)},
               {"lora_alpha", alpha},
               {"lora_dropout", lora.dropout},
               {"modules_to_save", list_or_null(lora.modules_to_save)},
               {"peft_type", "LORA"},
               {"r", lora.rank},
               {"rank_pattern", Json::object()},
               {"alpha_pattern", Json::object()},
               {"revision", nullptr},
               {"target_modules", targets},
               {"task_type", "CAUSAL_LM"},
               {"use_dora", lora.dora},
               {"use_rslora", lora.rslora}};
  if (alpha == static_cast<double>(static_cast<std::int64_t>(alpha))) json["lora_alpha"] = static_cast<std::int64_t>(alpha);
  return json.dump(2) + "\n";
}

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
    if (source.origin != Origin::standard && source.origin != Origin::derived && mine != theirs) {
      problems.push_back(fmt::format("{}: {} = {}, but {} says {}. Remove {}: the folder gives the adapter's shape.", source.where,
                                     option.key, write_value(option, mine), file, write_value(option, theirs), option.key));
      continue;
    }
    option.set(config, theirs);
    settings.sources[std::string(option.key)] = {Origin::derived, file};
  }
  config.lora.enabled = true;
  return problems;
}

}  // namespace lockstep::config
