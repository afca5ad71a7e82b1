// The table of a decoder's parameters.
#include "layout/decoder.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "layout/family.h"

namespace lockstep::layout {
namespace {

LeafSpec matrix(std::string name, std::vector<Piece> pieces, double std, Split split, Role role = Role::inner) {
  return {.name = std::move(name),
          .pieces = std::move(pieces),
          .init = Init::normal,
          .init_std = std,
          .decay = true,
          .role = role,
          .split = split};
}

LeafSpec vector(std::string name, std::vector<Piece> pieces, Init init, Split split = Split::none) {
  return {.name = std::move(name), .pieces = std::move(pieces), .init = init, .init_std = 0, .decay = false, .split = split};
}

std::string weight(std::string_view module) { return fmt::format("{}.weight", module); }

UnitSpec block_unit(const config::ModelConfig& model, const Dims& d, std::int64_t layer) {
  const Names& names = names_of(model);
  const std::vector<BlockMatrix> matrices = block_matrices(model, layer);
  UnitSpec unit{.name = fmt::format("block {}", layer), .leaves = {}};
  for (const BlockMatrix& one : matrices) {
    std::vector<Piece> pieces;
    for (const Module& module : one.modules) pieces.push_back({weight(names.in_block(layer, module.name)), {module.out, module.in}});
    unit.leaves.push_back(matrix(weight(one.leaf), std::move(pieces), d.init_std, one.split));
  }
  const auto norm = [&](std::string_view leaf, std::string_view module, std::int64_t width) {
    unit.leaves.push_back(vector(weight(leaf), {{weight(names.in_block(layer, module)), {width}}}, Init::ones));
  };
  norm("input_layernorm", names.input_norm, d.hidden);
  norm("post_attention_layernorm", names.post_norm, d.hidden);
  if (d.qkv_bias) {
    std::vector<Piece> pieces;
    for (const Module& module : matrices[BlockLeaves::qkv].modules)
      pieces.push_back({fmt::format("{}.bias", names.in_block(layer, module.name)), {module.out}});
    unit.leaves.push_back(vector("qkv_proj.bias", std::move(pieces), Init::zeros, Split::rows));
  }
  if (d.qk_norm) {
    norm("q_norm", names.q_norm, d.q_norm_width());
    norm("k_norm", names.k_norm, d.k_norm_width());
  }
  return unit;
}

}  // namespace

std::int64_t BlockMatrix::out() const {
  std::int64_t width = 0;
  for (const Module& module : modules) width += module.out;
  return width;
}

std::vector<BlockMatrix> block_matrices(const config::ModelConfig& model, std::int64_t) {
  const Dims d(model);
  const Names& names = names_of(model);
  const auto module = [](std::string_view name, std::int64_t out, std::int64_t in) { return Module{std::string(name), out, in}; };
  std::vector<BlockMatrix> all;
  all.push_back({.leaf = "qkv_proj",
                 .modules = {module(names.q, d.q_width(), d.hidden), module(names.k, d.kv_width(), d.hidden),
                             module(names.v, d.kv_width(), d.hidden)},
                 .split = Split::rows});
  all.push_back({.leaf = "o_proj", .modules = {module(names.out, d.hidden, d.q_width())}, .split = Split::columns});
  all.push_back({.leaf = "gate_up_proj",
                 .modules = {module(names.gate, d.intermediate, d.hidden), module(names.up, d.intermediate, d.hidden)},
                 .split = Split::rows});
  all.push_back({.leaf = "down_proj", .modules = {module(names.down, d.hidden, d.intermediate)}, .split = Split::columns});
  base::check(all.size() == kBlockMatrices, "a block has so many matrices");
  return all;
}

LargestMatrix largest_matrix(const config::ModelConfig& model) {
  LargestMatrix largest;
  for (std::int64_t layer = 0; layer < model.num_layers; ++layer) {
    for (const BlockMatrix& matrix : block_matrices(model, layer)) {
      largest.elements = std::max(largest.elements, matrix.elements());
      largest.out = std::max(largest.out, matrix.out());
      largest.in = std::max(largest.in, matrix.in());
    }
  }
  return largest;
}

std::vector<UnitSpec> decoder_units(const config::ModelConfig& model) {
  check_sizes(model);
  const Dims d(model);
  const Names& names = names_of(model);
  std::vector<UnitSpec> units;
  units.push_back({.name = "embedding",
                   .leaves = {matrix("embed_tokens.weight", {{weight(names.embedding), {d.vocab, d.hidden}}}, d.init_std, Split::rows,
                                     Role::token_embedding)}});
  for (std::int64_t layer = 0; layer < d.layers; ++layer) units.push_back(block_unit(model, d, layer));
  UnitSpec head{.name = "head", .leaves = {}};
  if (!d.tied)
    head.leaves.push_back(
        matrix("lm_head.weight", {{weight(names.head), {d.vocab, d.hidden}}}, d.init_std, Split::rows, Role::output_head));
  head.leaves.push_back(vector("norm.weight", {{weight(names.final_norm), {d.hidden}}}, Init::ones));
  units.push_back(std::move(head));
  return units;
}

std::int64_t count_parameters(const config::ModelConfig& model) {
  std::int64_t count = 0;
  for (const UnitSpec& unit : decoder_units(model)) count += unit.parameters();
  return count;
}

std::vector<Module> modules_of(const config::ModelConfig& model) {
  const config::ModelConfig m = with_defaults(model);
  const Names& names = names_of(m);
  std::vector<Module> modules = {{std::string(names.embedding), m.vocab_size, m.hidden_size}};
  for (std::int64_t layer = 0; layer < m.num_layers; ++layer) {
    for (const BlockMatrix& matrix : block_matrices(m, layer)) {
      for (const Module& module : matrix.modules) modules.push_back({names.in_block(layer, module.name), module.out, module.in});
    }
  }
  modules.push_back({std::string(names.head), m.vocab_size, m.hidden_size});
  return modules;
}

}  // namespace lockstep::layout
