// Which matrices have adapters, and the units that hold them, in PEFT's names.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/text.h"
#include "config/adapter/targets.h"
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

UnitSpec block_adapters(const Dims& d, const config::LoraConfig& lora, std::int64_t layer) {
  constexpr std::string_view kinds[] = {"qkv_proj", "o_proj", "gate_up_proj", "down_proj"};
  UnitSpec unit{.name = fmt::format("adapters of block {}", layer), .leaves = {}};
  for (const AdaptedMatrix& adapted : adapted_matrices(d, lora, layer)) {
    const std::string_view kind = kinds[adapted.matrix];
    const std::int64_t in = input_width(d, adapted.matrix);
    LeafSpec a{.name = fmt::format("{}.lora_A", kind), .pieces = {}, .init = Init::uniform, .init_std = 1 / std::sqrt(double(in))};
    std::vector<LeafSpec> bs;
    LeafSpec magnitude{.name = fmt::format("{}.lora_magnitude_vector", kind), .pieces = {}, .init = Init::ones};
    for (const AdaptedMatrix::Part& part : adapted.parts) {
      a.pieces.push_back({fmt::format("{}{}.lora_A.weight", kPrefix, part.module), {part.rank, in}});
      if (part.row == 0) {
        const std::string name = adapted.has_one_b() ? fmt::format("{}.lora_B", kind) : fmt::format("{}.lora_B", part.module);
        bs.push_back({.name = name, .pieces = {}, .init = Init::zeros, .role = Role::adapter_b});
      }
      bs.back().pieces.push_back({fmt::format("{}{}.lora_B.weight", kPrefix, part.module), {part.columns, part.rank}});
      magnitude.pieces.push_back({fmt::format("{}{}.lora_magnitude_vector", kPrefix, part.module), {part.columns}});
    }
    unit.leaves.push_back(std::move(a));
    for (LeafSpec& b : bs) unit.leaves.push_back(std::move(b));
    if (lora.dora) unit.leaves.push_back(std::move(magnitude));
  }
  return unit;
}

// B of several parts is one leaf where their ranks are equal: one kernel takes them together. Returns the leaf behind.
std::size_t place_b(std::vector<AdaptedMatrix::Part>& parts, std::size_t first) {
  const bool equal = std::all_of(parts.begin(), parts.end(), [&](const auto& part) { return part.rank == parts.front().rank; });
  std::int64_t row = 0;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    parts[i].b = equal ? first : first + i;
    parts[i].row = equal ? row : 0;
    row += parts[i].columns;
  }
  return parts.back().b + 1;
}

// A module trained whole: a copy of its own beside the frozen one, as PEFT holds it.
std::optional<UnitSpec> saved_module(const Dims& d, const config::LoraConfig& lora, std::string_view unit, const std::string& module) {
  if (!config::AdapterTargets(lora).saves(module)) return std::nullopt;
  LeafSpec leaf{.name = fmt::format("{}.weight", module),
                .pieces = {{fmt::format("{}{}.weight", kPrefix, module), {d.vocab, d.hidden}}},
                .role = module == "lm_head" ? Role::output_head : Role::token_embedding};
  return UnitSpec{.name = fmt::format("{} trained whole", unit), .leaves = {std::move(leaf)}};
}

}  // namespace

std::vector<AdaptedMatrix> adapted_matrices(const Dims& d, const config::LoraConfig& lora, std::int64_t layer) {
  std::vector<AdaptedMatrix> all;
  if (!lora.enabled) return all;
  const config::AdapterTargets targets(lora);
  std::size_t leaf = 0;
  for (std::size_t matrix = 0; matrix < kBlockMatrices; ++matrix) {
    AdaptedMatrix adapted{.matrix = matrix, .a = leaf, .magnitude = 0, .parts = {}};
    std::int64_t column = 0, low = 0;
    for (const Module& module : kModules) {
      if (module.matrix != matrix) continue;
      const std::int64_t columns = output_width(d, module.name);
      const std::string name = full_name(layer, module.name);
      if (targets.contains(name)) {
        const std::int64_t rank = targets.rank(name);
        adapted.parts.push_back({name, column, columns, rank, targets.scale(name), low, /*b=*/0, /*row=*/0});
        low += rank;
      }
      column += columns;
    }
    if (adapted.parts.empty()) continue;
    leaf = place_b(adapted.parts, leaf + 1);
    adapted.magnitude = leaf;
    leaf += lora.dora ? 1 : 0;
    all.push_back(std::move(adapted));
  }
  return all;
}

std::int64_t adapter_bytes(const config::ModelConfig& model, const config::LoraConfig& lora, std::int64_t rows, std::int64_t element_size) {
  const Dims d(model);
  std::int64_t kept = 0, low = 0, in = 0, out = 0;
  for (std::int64_t layer = 0; layer < d.layers; ++layer) {
    for (const AdaptedMatrix& adapted : adapted_matrices(d, lora, layer)) {
      const std::int64_t width = adapted.low_width();
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
  units.front() = saved_module(d, lora, "embedding", "model.embed_tokens");
  for (std::int64_t layer = 0; layer < d.layers; ++layer) {
    UnitSpec unit = block_adapters(d, lora, layer);
    if (!unit.leaves.empty()) units[std::size_t(layer + 1)] = std::move(unit);
  }
  units.back() = saved_module(d, lora, "head", "lm_head");
  const bool any = std::any_of(units.begin(), units.end(), [](const auto& unit) { return unit.has_value(); });
  if (!any)
    throw base::usage_error("lora", "lora.target_modules = {} matches no matrix of this model.", base::join(lora.target_modules, ", "));
  return units;
}

}  // namespace lockstep::model
