// The families of models: what Hugging Face calls them and their tensors, and how their networks differ.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "config/run_config.h"

namespace lockstep::layout {

// What the tensors of a decoder are called, without ".weight" and ".bias"; those of a block stand behind block_prefix() and its number.
struct Names {
  std::string_view embedding, blocks, final_norm, head;
  std::string_view q, k, v, out, gate, up, down;
  std::string_view input_norm, post_norm, q_norm, k_norm;

  std::string in_block(std::int64_t block, std::string_view module) const;  // "model.layers.3.mlp.up_proj"
};

// Whether a family's networks have a trait.
enum class Trait { never, always, may };

// Where a block's norms are: before its branches, or behind them. Behind them, those of q and k are over all heads at once.
enum class Norms { before, behind };

struct Family {
  config::Family family;
  std::string_view model_type, architecture;  // of config.json
  std::int64_t max_positions;                 // what transformers takes where config.json does not say, here as below
  double norm_eps;
  bool states_kv_heads;  // config.json has to say how many there are
  Trait qkv_bias, qk_norm;
  bool has_window;
  bool window_switch;  // config.json's use_sliding_window decides whether sliding_window counts, and then only some layers have one
  Norms norms;
  Names names;
};
std::span<const Family> families();
// Bug for Family::automatic.
const Family& family_named(config::Family family);

// The plainest family that has the traits of this shape; Family::automatic where none has them all.
config::Family family_of_shape(const config::ModelConfig& model);
// The family that transformers builds this very network from: the stated one, but for a Llama with what transformers' Llama knows not.
// UserError of "export" where no family has the shape's traits.
const Family& exported_family(const config::ModelConfig& model);
// Where the norms of a model's blocks are.
Norms norms_of(const config::ModelConfig& model);
// The names of a model's tensors: its family's; those that all families share where it has none.
const Names& names_of(const config::ModelConfig& model);

// What a setting contradicts in its family: "model.qkv_bias"; nothing where all is well.
std::optional<std::string_view> contradiction(const config::ModelConfig& model);

// The longest text that a model reads. Where only some layers have a window, no text outgrows it.
std::int64_t context_length(const config::ModelConfig& model);

}  // namespace lockstep::layout
