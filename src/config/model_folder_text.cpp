// Writes config.json for a model: the source folder's own, brought up to date, or one made from the shape.
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/files.h"
#include "base/json.h"
#include "config/config.h"
#include "config/model_folder.h"
#include "layout/family.h"

namespace lockstep::config {
namespace {

using Json = nlohmann::ordered_json;

std::string_view hugging_face_name(DType dtype) {
  switch (dtype) {
    case DType::f32: return "float32";
    case DType::f16: return "float16";
    case DType::bf16: return "bfloat16";
  }
  throw base::Bug("a dtype that has no name");
}

Json rope_scaling(const RopeScalingConfig& scaling) {
  switch (scaling.type) {
    case RopeScaling::none: return nullptr;
    case RopeScaling::linear: return {{"rope_type", "linear"}, {"factor", scaling.factor}};
    case RopeScaling::llama3:
      return {{"rope_type", "llama3"},
              {"factor", scaling.factor},
              {"low_freq_factor", scaling.low_freq_factor},
              {"high_freq_factor", scaling.high_freq_factor},
              {"original_max_position_embeddings", scaling.original_max_seq_len}};
  }
  throw base::Bug("a kind of rope scaling that has no name");
}

Json made(const ModelConfig& m) {
  const layout::Family& family = layout::exported_family(m);
  // The keys of transformers 4, which every version and vLLM read.
  Json json = {{"architectures", {family.architecture}},
               {"model_type", family.model_type},
               {"attention_bias", false},
               {"attention_dropout", 0.0},
               {"bos_token_id", nullptr},
               {"eos_token_id", nullptr},
               {"head_dim", m.head_dim},
               {"hidden_act", "silu"},
               {"hidden_size", m.hidden_size},
               {"initializer_range", m.initializer_range},
               {"intermediate_size", m.intermediate_size},
               {"max_position_embeddings", m.max_seq_len},
               {"num_attention_heads", m.num_heads},
               {"num_hidden_layers", m.num_layers},
               {"num_key_value_heads", m.kv_heads},
               {"rms_norm_eps", m.norm_eps},
               {"rope_theta", m.rope_theta},
               {"rope_scaling", rope_scaling(m.rope_scaling)},
               {"tie_word_embeddings", m.tie_embeddings},
               {"use_cache", true},
               {"vocab_size", m.vocab_size}};
  if (family.has_window) json["sliding_window"] = m.sliding_window > 0 ? Json(m.sliding_window) : Json(nullptr);
  if (family.window_switch) {
    json.erase("attention_bias");
    json["use_sliding_window"] = m.sliding_window > 0;
    json["max_window_layers"] = m.sliding_window > 0 ? 0 : m.num_layers;
  }
  return json;
}

}  // namespace

std::string hugging_face_config(const ModelConfig& given, DType dtype, const std::filesystem::path& source) {
  const ModelConfig model = with_defaults(given);
  if (source.empty()) {
    Json json = made(model);
    json["torch_dtype"] = hugging_face_name(dtype);
    return json.dump(2) + "\n";
  }
  const std::filesystem::path file = source / "config.json";
  Json json = base::json_if_any(base::read_text(file)).value_or(nullptr);
  if (!json.is_object()) throw base::usage_error("export", "{} is no JSON object any more.", file.string());
  json.erase("_name_or_path");
  json.erase("quantization_config");
  json["tie_word_embeddings"] = model.tie_embeddings;  // folding an adapter may have untied what was tied
  if (json.value("max_position_embeddings", Json()) != model.max_seq_len) json["max_position_embeddings"] = model.max_seq_len;
  const bool old_key = json.contains("torch_dtype") || !json.contains("dtype");
  if (json.contains("dtype")) json["dtype"] = hugging_face_name(dtype);
  if (old_key) json["torch_dtype"] = hugging_face_name(dtype);
  return json.dump(2) + "\n";
}

}  // namespace lockstep::config
