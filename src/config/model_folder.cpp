// Reads a model folder's config.json: which family it is, and the shape, checked by the same table as every other setting.
#include "config/model_folder.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file/refusal.h"
#include "base/files.h"
#include "base/json.h"
#include "base/text.h"
#include "config/table/option.h"
#include "config/table/value.h"
#include "layout/family.h"

namespace lockstep::config {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr std::uintmax_t longest_config = 16u << 20;  // no honest config.json comes near

std::string supported() {
  std::vector<std::string_view> names;
  for (const layout::Family& family : layout::families()) names.push_back(family.architecture);
  return fmt::format("{} and {}", fmt::join(std::span(names).first(names.size() - 1), ", "), names.back());
}

std::string shown(const Json& value) {
  std::string text = value.dump(-1, ' ', true, Json::error_handler_t::replace);
  if (text.size() > 60) text = text.substr(0, 57) + "...";
  return text;
}

class ConfigFile {
 public:
  explicit ConfigFile(const fs::path& folder) : path_(folder / "config.json") {
    std::error_code error;
    if (!fs::is_regular_file(path_, error)) throw missing_file();
    if (fs::file_size(path_, error) > longest_config) throw mistake("it is larger than 16 MiB, so it is no config.json of a model");
    try {
      json_ = base::parse_json(base::read_text(path_));
    } catch (const base::JsonError& error) {
      throw mistake(fmt::format("it is no JSON object: {}", error.what()));
    }
    if (!json_.is_object()) throw mistake("it is no JSON object");
  }

  FolderModel read() {
    const layout::Family& family = find_family();
    run_.model.family = family.family;
    FolderModel result;
    refuse_quantized();
    sizes();
    if (family.states_kv_heads) required("num_key_value_heads");
    count("num_key_value_heads", "model.kv_heads");
    count("head_dim", "model.head_dim");
    if (family.model_type == "qwen3" && !json_.contains("head_dim")) run_.model.head_dim = 128;
    run_.model = with_sizes(run_.model);
    activation();
    biases(family);
    set("tie_word_embeddings", "model.tie_embeddings", /*otherwise=*/false);
    set("rms_norm_eps", "model.norm_eps", family.norm_eps);
    set("initializer_range", "model.initializer_range", 0.02);
    run_.model.max_seq_len = family.max_positions;
    count("max_position_embeddings", "model.max_seq_len");
    run_.model.qk_norm = family.qk_norm == layout::Trait::always;
    window(family);
    rotary();
    result.model = run_.model;
    for (const char* key : {"dtype", "torch_dtype"}) {
      if (const Json* value = find(key); value != nullptr && result.dtype.empty()) {
        if (!value->is_string()) throw mistake(fmt::format("{} = {} is no text", key, shown(*value)));
        result.dtype = value->get<std::string>();
      }
    }
    return result;
  }

 private:
  base::UserError mistake(std::string_view what) const { return base::usage_error("config", "{}: {}.", path_.string(), what); }

  base::UserError missing_file() const {
    const fs::path folder = path_.parent_path();
    std::error_code error;
    base::refuse_if_hidden(folder);
    if (fs::is_regular_file(folder, error)) {
      return base::usage_error("config", "model.path = {} is a file. Give the folder that holds config.json and the safetensors files.",
                               folder.string());
    }
    if (!fs::is_directory(folder, error)) {
      const std::string name = folder.string();
      const bool hub_name = !name.starts_with("/") && !name.starts_with(".") && std::count(name.begin(), name.end(), '/') == 1;
      return base::usage_error("config", "model.path = {}: there is no such folder.{}", name,
                               hub_name ? fmt::format(" Models are read from disk, not downloaded: `hf download {} --local-dir {}` fetches "
                                                      "one, then use --model {}.",
                                                      name, folder.filename().string(), folder.filename().string())
                                        : " Give the folder that holds config.json and the safetensors files.");
    }
    return base::usage_error("config", "model.path = {} is no model folder: it holds no config.json.{}", folder.string(),
                             fs::exists(folder / "adapter_config.json", error)
                                 ? " It holds a PEFT adapter: give it to lora.adapters, and its base model to model.path."
                                 : "");
  }

  // A missing key and null are the same thing, as in transformers.
  const Json* find(const std::string& key) const { return find(json_, key); }
  static const Json* find(const Json& object, const std::string& key) {
    const auto found = object.find(key);
    return found == object.end() || found->is_null() ? nullptr : &*found;
  }

  void required(const std::string& key) const {
    if (!json_.contains(key)) throw mistake(fmt::format("it has no {}", key));
  }

  const layout::Family& find_family() const {
    std::string architecture, type;
    if (const Json* list = find("architectures"); list != nullptr && list->is_array() && !list->empty() && list->front().is_string())
      architecture = list->front().get<std::string>();
    if (const Json* value = find("model_type"); value != nullptr && value->is_string()) type = value->get<std::string>();
    if (architecture.empty() && type.empty()) {
      throw mistake(fmt::format("it names neither architectures nor a model_type, so it is not a model's. Supported are {}", supported()));
    }
    for (const layout::Family& family : layout::families()) {
      if (architecture.empty() ? family.model_type == type : family.architecture == architecture) {
        if (!type.empty() && type != family.model_type)
          throw mistake(fmt::format("architectures says {}, model_type says {}: one of them is wrong", architecture, type));
        return family;
      }
    }
    throw mistake(fmt::format("the architecture {} is not supported. Supported are {}",
                              architecture.empty() ? fmt::format("of model_type {}", shown(type)) : shown(architecture), supported()));
  }

  // Weights in bitsandbytes' form are told apart tensor by tensor when they are read.
  void refuse_quantized() const {
    const Json* quantized = find("quantization_config");
    if (quantized == nullptr) return;
    const Json* method = quantized->is_object() ? find(*quantized, "quant_method") : nullptr;
    if (method != nullptr && *method == "bitsandbytes") return;
    throw mistake(
        fmt::format("its weights are quantized ({}), which is not supported. Use the folder of the original 16-bit weights; "
                    "--load-in-4bit quantizes them while they are read",
                    method == nullptr ? "no quant_method" : shown(*method)));
  }

  // Reads `value` by the rules of one of our settings.
  void take(const std::string& name, const Json& value, std::string_view key) {
    const Option& option = option_of(key);
    Written written{.form = Written::Form::scalar, .text = value.dump(-1, ' ', true, Json::error_handler_t::replace)};
    if (value.is_string()) written = {.form = Written::Form::quoted, .text = shown(value)};
    if (value.is_array()) written.form = Written::Form::list;
    if (value.is_object()) written.form = Written::Form::map;
    const auto read = read_value(option, written);
    if (const auto* refusal = std::get_if<Refusal>(&read)) throw mistake(fmt::format("{} = {} {}", name, shown(value), refusal->rule));
    option.set(run_, std::get<Value>(read));
  }

  template <typename T>
  void set(const std::string& name, std::string_view key, T otherwise) {
    const Json* value = find(name);
    take(name, value == nullptr ? Json(otherwise) : *value, key);
  }

  // Like take, for numbers that may be left out, but never 0: our own settings give 0 a meaning.
  void count(const std::string& name, std::string_view key) {
    const Json* value = find(name);
    if (value == nullptr) return;
    if (*value == 0) throw mistake(fmt::format("{} = 0 must be a whole number, at least 1", name));
    take(name, *value, key);
  }

  void sizes() {
    constexpr std::pair<const char*, std::string_view> keys[] = {{"hidden_size", "model.hidden_size"},
                                                                 {"num_hidden_layers", "model.num_layers"},
                                                                 {"num_attention_heads", "model.num_heads"},
                                                                 {"intermediate_size", "model.intermediate_size"},
                                                                 {"vocab_size", "model.vocab_size"}};
    for (const auto& [name, key] : keys) {
      if (find(name) == nullptr) throw mistake(fmt::format("it has no {}", name));
      count(name, key);
    }
  }

  ModelConfig with_sizes(ModelConfig m) const {
    if (m.kv_heads == 0) m.kv_heads = m.num_heads;
    if (m.head_dim == 0 && m.hidden_size % m.num_heads != 0) {
      throw mistake(fmt::format("hidden_size = {} does not divide by num_attention_heads = {}, and there is no head_dim", m.hidden_size,
                                m.num_heads));
    }
    if (m.head_dim == 0) m.head_dim = m.hidden_size / m.num_heads;
    if (m.head_dim % 2 != 0) throw mistake(fmt::format("head_dim = {} is odd; rotary positions turn pairs", m.head_dim));
    if (m.num_heads % m.kv_heads != 0) {
      throw mistake(fmt::format("num_attention_heads = {} is not a multiple of num_key_value_heads = {}", m.num_heads, m.kv_heads));
    }
    return m;
  }

  void activation() const {
    const Json* act = find("hidden_act");
    if (act != nullptr && *act != "silu") throw mistake(fmt::format("hidden_act = {} is not supported; silu is", shown(*act)));
  }

  void biases(const layout::Family& family) {
    set("mlp_bias", "model.qkv_bias", false);  // read by the rules of a switch
    if (run_.model.qkv_bias) throw mistake("mlp_bias = true: biases in the feed-forward part are not supported");
    set("attention_bias", "model.qkv_bias", false);
    if (family.qkv_bias == layout::Trait::always) run_.model.qkv_bias = true;
  }

  // Data no longer than the window sees no difference, so one number for all layers is enough.
  void window(const layout::Family& family) {
    if (!family.has_window) return;
    if (family.window_switch) {
      const Json* on = find("use_sliding_window");
      if (on == nullptr || *on == false) return;
      if (*on != true) throw mistake(fmt::format("use_sliding_window = {} must be true or false", shown(*on)));
    }
    if (!json_.contains("sliding_window")) run_.model.sliding_window = 4096;
    count("sliding_window", "model.sliding_window");
  }

  // transformers 5 writes rope_parameters, those before it rope_theta and rope_scaling.
  void rotary() {
    const bool whole = find("rope_parameters") != nullptr;
    const std::string name = whole ? "rope_parameters" : "rope_scaling";
    const Json* found = find(name);
    const Json given = found == nullptr ? Json::object() : *found;
    if (!given.is_object()) throw mistake(fmt::format("{} is no object", name));
    const Json* theta = find(given, "rope_theta");
    if (theta == nullptr) theta = find("rope_theta");
    take("rope_theta", theta == nullptr ? Json(10000.0) : *theta, "model.rope_theta");
    for (const Json* part : {find("partial_rotary_factor"), find(given, "partial_rotary_factor")}) {
      if (part != nullptr && *part != 1.0) throw mistake(fmt::format("partial_rotary_factor = {} is not supported", shown(*part)));
    }
    const Json* type = find(given, "rope_type");
    if (type == nullptr) type = find(given, "type");
    if (type == nullptr || *type == "default") return;
    RopeScalingConfig& scaling = run_.model.rope_scaling;
    if (*type == "linear") {
      scaling.type = RopeScaling::linear;
      rotary_number(name, given, "factor", "model.rope_scaling.factor");
      return;
    }
    if (*type != "llama3") {
      throw mistake(fmt::format("{} of type {} is not supported; default, linear and llama3 are", name, shown(*type)));
    }
    scaling.type = RopeScaling::llama3;
    rotary_number(name, given, "factor", "model.rope_scaling.factor");
    rotary_number(name, given, "low_freq_factor", "model.rope_scaling.low_freq_factor");
    rotary_number(name, given, "high_freq_factor", "model.rope_scaling.high_freq_factor");
    scaling.original_max_seq_len = run_.model.max_seq_len;
    if (find(given, "original_max_position_embeddings") != nullptr)
      rotary_number(name, given, "original_max_position_embeddings", "model.rope_scaling.original_max_seq_len");
    if (scaling.high_freq_factor <= scaling.low_freq_factor) {
      throw mistake(fmt::format("{}: high_freq_factor = {} must be above low_freq_factor = {}", name, scaling.high_freq_factor,
                                scaling.low_freq_factor));
    }
  }

  void rotary_number(const std::string& name, const Json& given, const char* part, std::string_view key) {
    const Json* value = find(given, part);
    if (value == nullptr) throw mistake(fmt::format("{} has no {}", name, part));
    take(fmt::format("{}.{}", name, part), *value, key);
  }

  fs::path path_;
  Json json_;
  RunConfig run_;
};

}  // namespace

FolderModel read_model_folder(const fs::path& folder) { return ConfigFile(folder).read(); }

std::optional<DType> dtype_from_hugging_face(std::string_view name) {
  if (name.starts_with("torch.")) name.remove_prefix(6);
  if (name == "float32") return DType::f32;
  if (name == "float16") return DType::f16;
  if (name == "bfloat16") return DType::bf16;
  return std::nullopt;
}

}  // namespace lockstep::config
