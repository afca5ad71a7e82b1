// Which matrices have adapters, and the units that hold them, in PEFT's names.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/text.h"
#include "rank/model/adapter.h"
#include "rank/model/model.h"

namespace lockstep::model {
namespace {

constexpr std::string_view kPrefix = "base_model.model.";  // PEFT wraps the model twice

struct Module {
  std::string_view name;  // below the block
  std::size_t matrix;
};
constexpr Module kModules[] = {{"self_attn.q_proj", 0}, {"self_attn.k_proj", 0}, {"self_attn.v_proj", 0}, {"self_attn.o_proj", 1},
                               {"mlp.gate_proj", 2},    {"mlp.up_proj", 2},      {"mlp.down_proj", 3}};

std::int64_t output_width(const Dims& d, std::string_view module) {
  if (module.ends_with("q_proj")) return d.q_width();
  if (module.ends_with("k_proj") || module.ends_with("v_proj")) return d.kv_width();
  if (module.ends_with("gate_proj") || module.ends_with("up_proj")) return d.intermediate;
  return d.hidden;
}

std::int64_t input_width(const Dims& d, std::size_t matrix) {
  if (matrix == 1) return d.q_width();
  return matrix == 3 ? d.intermediate : d.hidden;
}

std::int64_t stacked_width(const Dims& d, std::size_t matrix) {
  std::int64_t width = 0;
  for (const Module& module : kModules) width += module.matrix == matrix ? output_width(d, module.name) : 0;
  return width;
}

std::string full_name(std::int64_t layer, std::string_view module) { return fmt::format("model.layers.{}.{}", layer, module); }

// PEFT's rule: the whole name, or its end after a dot.
bool names(const std::string& target, const std::string& module) { return module == target || module.ends_with("." + target); }

bool is_target(const config::LoraConfig& lora, const std::string& module) {
  return std::any_of(lora.target_modules.begin(), lora.target_modules.end(),
                     [&](const std::string& target) { return target == "all-linear" || names(target, module); });
}

bool is_adapted(const config::LoraConfig& lora, std::int64_t layer) {
  const auto& layers = lora.layers_to_transform;
  return layers.empty() || std::find(layers.begin(), layers.end(), layer) != layers.end();
}

bool is_saved(const config::LoraConfig& lora, const std::string& module) {
  return std::any_of(lora.modules_to_save.begin(), lora.modules_to_save.end(),
                     [&](const std::string& target) { return names(target, module); });
}

void check_targets(const Dims& d, const config::LoraConfig& lora) {
  for (const std::string& target : lora.target_modules) {
    if (target == "all-linear") continue;
    bool found = false;
    for (std::int64_t layer = 0; layer < d.layers && !found; ++layer)
      for (const Module& module : kModules) found = found || names(target, full_name(layer, module.name));
    if (found) continue;
    const bool whole = target == "lm_head" || target == "embed_tokens";
    throw base::usage_error(
        "lora", "lora.target_modules names {}, which is no matrix of a block. {}", target,
        whole ? "Train it whole: lora.modules_to_save."
              : "There are q_proj, k_proj, v_proj, o_proj, gate_proj, up_proj and down_proj, or all-linear for all of them.");
  }
  for (const std::string& target : lora.modules_to_save) {
    if (!names(target, "model.embed_tokens") && !names(target, "lm_head"))
      throw base::usage_error("lora", "lora.modules_to_save names {}. embed_tokens and lm_head can be trained whole.", target);
  }
  for (const std::int64_t layer : lora.layers_to_transform) {
    if (layer >= d.layers)
      throw base::usage_error("lora", "lora.layers_to_transform names block {}, but the model has {}, counted from 0.", layer, d.layers);
  }
}

UnitSpec block_adapters(const Dims& d, const config::LoraConfig& lora, std::int64_t layer) {
  constexpr std::string_view kinds[] = {"qkv_proj", "o_proj", "gate_up_proj", "down_proj"};
  UnitSpec unit{.name = fmt::format("adapters of block {}", layer), .leaves = {}};
  for (const AdaptedMatrix& adapted : adapted_matrices(d, lora, layer)) {
    const std::int64_t in = input_width(d, adapted.matrix);
    LeafSpec a{.name = fmt::format("{}.lora_A", kinds[adapted.matrix]),
               .pieces = {},
               .init = Init::uniform,
               .init_std = 1 / std::sqrt(double(in))};
    LeafSpec b{.name = fmt::format("{}.lora_B", kinds[adapted.matrix]), .pieces = {}, .init = Init::zeros, .role = Role::adapter_b};
    LeafSpec magnitude{.name = fmt::format("{}.lora_magnitude_vector", kinds[adapted.matrix]), .pieces = {}, .init = Init::ones};
    for (const Module& module : kModules) {
      const std::string name = full_name(layer, module.name);
      if (module.matrix != adapted.matrix || !is_target(lora, name)) continue;
      const std::int64_t out = output_width(d, module.name);
      a.pieces.push_back({fmt::format("{}{}.lora_A.weight", kPrefix, name), {lora.rank, in}});
      b.pieces.push_back({fmt::format("{}{}.lora_B.weight", kPrefix, name), {out, lora.rank}});
      magnitude.pieces.push_back({fmt::format("{}{}.lora_magnitude_vector", kPrefix, name), {out}});
    }
    unit.leaves.push_back(std::move(a));
    unit.leaves.push_back(std::move(b));
    if (lora.dora) unit.leaves.push_back(std::move(magnitude));
  }
  return unit;
}

// A module trained whole: a copy of its own beside the frozen one, as PEFT holds it.
std::optional<UnitSpec> saved_module(const Dims& d, const config::LoraConfig& lora, std::string_view unit, const std::string& module) {
  if (!is_saved(lora, module)) return std::nullopt;
  LeafSpec leaf{.name = fmt::format("{}.weight", module),
                .pieces = {{fmt::format("{}{}.weight", kPrefix, module), {d.vocab, d.hidden}}},
                .role = module == "lm_head" ? Role::output_head : Role::token_embedding};
  return UnitSpec{.name = fmt::format("{} trained whole", unit), .leaves = {std::move(leaf)}};
}

}  // namespace

double adapter_scale(const config::LoraConfig& lora) {
  const double alpha = lora.alpha > 0 ? lora.alpha : 2.0 * double(lora.rank);
  return alpha / (lora.rslora ? std::sqrt(double(lora.rank)) : double(lora.rank));
}

std::vector<AdaptedMatrix> adapted_matrices(const Dims& d, const config::LoraConfig& lora, std::int64_t layer) {
  std::vector<AdaptedMatrix> all;
  if (!lora.enabled || !is_adapted(lora, layer)) return all;
  std::size_t leaf = 0;
  for (std::size_t matrix = 0; matrix < kBlockMatrices; ++matrix) {
    AdaptedMatrix adapted{.matrix = matrix, .a = leaf, .b = leaf + 1, .magnitude = leaf + 2, .parts = {}};
    std::int64_t column = 0;
    for (const Module& module : kModules) {
      if (module.matrix != matrix) continue;
      const std::int64_t columns = output_width(d, module.name);
      if (is_target(lora, full_name(layer, module.name))) adapted.parts.push_back({column, columns});
      column += columns;
    }
    if (adapted.parts.empty()) continue;
    leaf += lora.dora ? 3 : 2;
    all.push_back(std::move(adapted));
  }
  return all;
}

std::int64_t adapter_bytes(const config::ModelConfig& model, const config::LoraConfig& lora, std::int64_t rows, std::int64_t element_size) {
  const Dims d(model);
  std::int64_t kept = 0, low = 0, in = 0, out = 0;
  for (std::int64_t layer = 0; layer < d.layers; ++layer) {
    for (const AdaptedMatrix& adapted : adapted_matrices(d, lora, layer)) {
      const std::int64_t width = std::int64_t(adapted.parts.size()) * lora.rank;
      kept += width;
      low = std::max(low, width);
      in = std::max(in, input_width(d, adapted.matrix));
      out = std::max(out, stacked_width(d, adapted.matrix));
    }
  }
  // DoRA: the product, its gradient, and for a moment both multiplied.
  const std::int64_t scratch = low + (lora.dropout > 0 ? in : 0) + (lora.dora ? 3 * out : 0);
  return rows * element_size * (kept + scratch);
}

std::vector<std::optional<UnitSpec>> adapter_units(const config::ModelConfig& model, const config::LoraConfig& lora) {
  const Dims d(model);
  std::vector<std::optional<UnitSpec>> units(std::size_t(d.layers + 2));
  if (!lora.enabled) return units;
  check_targets(d, lora);
  units.front() = saved_module(d, lora, "embedding", "model.embed_tokens");
  for (std::int64_t layer = 0; layer < d.layers; ++layer) {
    UnitSpec unit = block_adapters(d, lora, layer);
    if (!unit.leaves.empty()) units[std::size_t(layer + 1)] = std::move(unit);
  }
  units.back() = saved_module(d, lora, "head", "lm_head");
  return units;
}

}  // namespace lockstep::model
