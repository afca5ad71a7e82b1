// Adapters alone are no model: with another base, scale or target they would load and mean something else.
#include "rank/train/resume/identity.h"

#include <nlohmann/json.hpp>
#include <set>

#include "base/error.h"
#include "base/text.h"
#include "rank/model/projection/adapter.h"
#include "rank/train/make_model.h"

namespace lockstep::train {
namespace {

using Json = nlohmann::ordered_json;

// By the tensors that are trained: "all-linear" and a list of all of them are the same.
std::set<std::string> targets_of(const config::RunConfig& config) {
  std::set<std::string> targets;
  for (const auto& unit : model::adapter_units(config.model, config.lora)) {
    if (!unit) continue;
    for (const model::LeafSpec& leaf : unit->leaves) {
      for (const model::Piece& piece : leaf.pieces) {
        const std::size_t end = piece.name.find(".lora_A");
        if (end != std::string::npos)
          targets.insert(piece.name.substr(piece.name.rfind('.', end - 1) + 1, end - piece.name.rfind('.', end - 1) - 1));
      }
    }
  }
  return targets;
}

std::string_view bits_of(const config::ModelConfig& model) {
  switch (quantization_of(model)) {
    case model::Quantization::nf4: return model.double_quant ? "nf4, scales quantized" : "nf4";
    case model::Quantization::int8: return "int8";
    case model::Quantization::none: break;
  }
  return "none";
}

// Rounding and random numbers are not the same bits on every kind of device.
std::string held_as(const Run& run) {
  return fmt::format("{} on {}", config::name_of(run.config.model.dtype), run.world->device().is_cpu() ? "cpu" : "cuda");
}

}  // namespace

Json adapters_json(const Run& run) {
  const config::LoraConfig& lora = run.config.lora;
  if (!lora.enabled) return nullptr;
  const std::set<std::int64_t> layers(lora.layers_to_transform.begin(), lora.layers_to_transform.end());
  const std::set<std::string> whole(lora.modules_to_save.begin(), lora.modules_to_save.end());
  return {{"rank", lora.rank},
          {"alpha", lora.alpha > 0 ? lora.alpha : 2.0 * static_cast<double>(lora.rank)},
          {"rslora", lora.rslora},
          {"dora", lora.dora},
          {"target_modules", targets_of(run.config)},
          {"layers_to_transform", layers},
          {"modules_to_save", whole},
          {"quantization", bits_of(run.config.model)},
          {"base", run.base_fingerprint},
          {"held_as", held_as(run)}};
}

void check_same_adapters(const Json& saved, const Run& run, const std::filesystem::path& checkpoint, std::vector<std::string>& notes) {
  const Json here = adapters_json(run);
  if (here.is_null()) return;
  if (!saved.is_object()) {
    notes.push_back(
        fmt::format("{} was written by an older version and does not say what its adapters rest on: base weights, rank, alpha and targets "
                    "are not compared",
                    checkpoint.string()));
    return;
  }
  std::vector<std::string> differences;
  const bool comparable = saved.value("held_as", "") == held_as(run);
  for (const auto& [key, value] : here.items()) {
    const Json there = saved.value(key, Json());
    if (key == "held_as" || there == value) continue;
    if (key == "base" && !comparable) {
      notes.push_back(fmt::format("the base weights were held as {} and are held as {} now: whether they are the same is not compared",
                                  saved.value("held_as", "?"), held_as(run)));
      continue;
    }
    const std::string name = key == "base"           ? "the fingerprint of the frozen weights"
                             : key == "quantization" ? "model's quantization"
                                                     : "lora." + key;
    differences.push_back(fmt::format("{} is {} there and {} here", name, there.dump(), value.dump()));
  }
  if (differences.empty()) return;
  throw base::checkpoint_error(
      "resume", "the adapters of {} rest on something else: {}. Use the model folder and the config they were trained with ({}).",
      checkpoint.string(), base::join(differences, "; "), (checkpoint.parent_path().parent_path() / "config.yaml").string());
}

}  // namespace lockstep::train
