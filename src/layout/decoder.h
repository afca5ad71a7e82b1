// Which parameters a decoder has, in Hugging Face's names, and what each starts as: told here, read by everyone else.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "layout/dims.h"
#include "layout/unit.h"

namespace lockstep::layout {

// One linear layer as Hugging Face has it.
struct Module {
  std::string name;      // "self_attn.q_proj" in a block; with model.layers.N before it elsewhere
  std::int64_t out, in;  // its weight is [out, in]
};

// A matrix of a block as it is multiplied with: modules with the same input are one ("q, k, v").
struct BlockMatrix {
  std::string_view leaf;  // "qkv_proj"
  std::vector<Module> modules;
  Split split;

  std::int64_t out() const;
  std::int64_t in() const { return modules.front().in; }
  std::int64_t elements() const { return out() * in(); }
};
// In the order of BlockLeaves. layer: blocks need not be equal.
std::vector<BlockMatrix> block_matrices(const config::ModelConfig& model, std::int64_t layer);
inline constexpr std::size_t kBlockMatrices = 4;

// The largest of the blocks' matrices, by elements and by either width: what buffers that one matrix at a time uses must hold.
struct LargestMatrix {
  std::int64_t elements = 0, out = 0, in = 0;
};
LargestMatrix largest_matrix(const config::ModelConfig& model);

// Embedding, blocks, head, in forward order. UserError where the sizes do not go together.
std::vector<UnitSpec> decoder_units(const config::ModelConfig& model);
std::int64_t count_parameters(const config::ModelConfig& model);

// Every linear layer, with whole names: those of every block in order, between the embedding and the head. A tied head is listed: PEFT
// sees it as a module of its own.
std::vector<Module> modules_of(const config::ModelConfig& model);

}  // namespace lockstep::layout
