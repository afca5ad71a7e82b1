// Which matrices have adapters, and the units that hold them, in PEFT's names.
#include "layout/adapters/adapters.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/text.h"
#include "layout/adapters/adapter_targets.h"
#include "layout/family.h"

namespace lockstep::layout {
namespace {

constexpr std::string_view kPrefix = "base_model.model.";  // PEFT wraps the model twice

UnitSpec block_adapters(const config::ModelConfig& model, const config::LoraConfig& lora, std::int64_t layer) {
  const std::vector<BlockMatrix> matrices = block_matrices(model, layer);
  UnitSpec unit{.name = fmt::format("adapters of block {}", layer), .leaves = {}};
  for (const AdaptedMatrix& adapted : adapted_matrices(model, lora, layer)) {
    const std::string_view kind = matrices[adapted.matrix].leaf;
    const std::int64_t in = matrices[adapted.matrix].in();
    LeafSpec a{.name = fmt::format("{}.lora_A", kind),
               .pieces = {},
               .init = Init::uniform,
               .init_std = 1 / std::sqrt(double(in)),
               .kind = LeafClass::adapter};
    std::vector<LeafSpec> bs;
    LeafSpec magnitude{.name = fmt::format("{}.lora_magnitude_vector", kind), .pieces = {}, .init = Init::ones, .kind = LeafClass::adapter};
    for (const AdaptedMatrix::Part& part : adapted.parts) {
      a.pieces.push_back({fmt::format("{}{}.lora_A.weight", kPrefix, part.module), {part.rank, in}});
      if (part.row == 0) {
        const std::string name = adapted.has_one_b() ? fmt::format("{}.lora_B", kind) : fmt::format("{}.lora_B", part.module);
        bs.push_back({.name = name, .pieces = {}, .init = Init::zeros, .role = Role::adapter_b, .kind = LeafClass::adapter});
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
std::optional<UnitSpec> saved_module(const config::ModelConfig& model, const config::LoraConfig& lora, std::string_view unit, Role role) {
  const Names& names = names_of(model);
  const std::string module(role == Role::output_head ? names.head : names.embedding);
  if (!AdapterTargets(lora).saves(module)) return std::nullopt;
  LeafSpec leaf{.name = fmt::format("{}.weight", module),
                .pieces = {{fmt::format("{}{}.weight", kPrefix, module), {model.vocab_size, model.hidden_size}}},
                .role = role,
                .kind = LeafClass::adapter};
  return UnitSpec{.name = fmt::format("{} trained whole", unit), .leaves = {std::move(leaf)}};
}

}  // namespace

std::vector<AdaptedMatrix> adapted_matrices(const config::ModelConfig& model, const config::LoraConfig& lora, std::int64_t layer) {
  std::vector<AdaptedMatrix> all;
  if (!lora.enabled) return all;
  const AdapterTargets targets(lora);
  const Names& names = names_of(model);
  const std::vector<BlockMatrix> matrices = block_matrices(model, layer);
  std::size_t leaf = 0;
  for (std::size_t matrix = 0; matrix < matrices.size(); ++matrix) {
    AdaptedMatrix adapted{.matrix = matrix, .a = leaf, .magnitude = 0, .parts = {}};
    std::int64_t column = 0, low = 0;
    for (const Module& module : matrices[matrix].modules) {
      const std::string name = names.in_block(layer, module.name);
      if (targets.contains(name)) {
        const std::int64_t rank = targets.rank(name);
        adapted.parts.push_back({name, column, module.out, rank, targets.scale(name), low, /*b=*/0, /*row=*/0});
        low += rank;
      }
      column += module.out;
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
  std::int64_t kept = 0, low = 0, in = 0, out = 0;
  for (std::int64_t layer = 0; layer < model.num_layers; ++layer) {
    const std::vector<BlockMatrix> matrices = block_matrices(model, layer);
    for (const AdaptedMatrix& adapted : adapted_matrices(model, lora, layer)) {
      const std::int64_t width = adapted.low_width();
      kept += width;
      low = std::max(low, width);
      in = std::max(in, matrices[adapted.matrix].in());
      out = std::max(out, matrices[adapted.matrix].out());
    }
  }
  // DoRA: the product, its gradient, and for a moment both multiplied.
  const std::int64_t scratch = low + (lora.dropout > 0 ? in : 0) + (lora.dora ? 3 * out : 0);
  return rows * element_size * (kept + scratch);
}

std::vector<std::optional<UnitSpec>> adapter_units(const config::ModelConfig& model, const config::LoraConfig& lora) {
  std::vector<std::optional<UnitSpec>> units(std::size_t(model.num_layers + 2));
  if (!lora.enabled) return units;
  units.front() = saved_module(model, lora, "embedding", Role::token_embedding);
  for (std::int64_t layer = 0; layer < model.num_layers; ++layer) {
    UnitSpec unit = block_adapters(model, lora, layer);
    if (!unit.leaves.empty()) units[std::size_t(layer + 1)] = std::move(unit);
  }
  units.back() = saved_module(model, lora, "head", Role::output_head);
  const bool any = std::any_of(units.begin(), units.end(), [](const auto& unit) { return unit.has_value(); });
  if (!any)
    throw base::usage_error("lora", "lora.target_modules = {} matches no matrix of this model.", base::join(lora.target_modules, ", "));
  return units;
}

}  // namespace lockstep::layout
