// How many activations fit: which blocks keep everything for backward and which make part of it again.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "config/run_config.h"
#include "rank/model/model.h"

namespace lockstep::model {

// Bytes that one row (token) of a micro-batch takes.
struct ActivationBytes {
  std::int64_t input;    // kept by every policy, per block
  std::int64_t matmuls;  // what matmuls and attention made, per block
  std::int64_t cheap;    // norms and SwiGLU, per block
  std::int64_t working;  // shared by all blocks: scratch, gradients of activations, the head's rows
};
// Logits of a chunk, workspaces of matmuls and attention, and room for the allocator's rounding; other ranks need buffers too.
inline constexpr std::int64_t activation_reserve_bytes = std::int64_t{1} << 30;
inline constexpr std::int64_t ranks_reserve_bytes = std::int64_t{1} << 29;
ActivationBytes activation_bytes(const config::ModelConfig& model, std::int64_t element_size);

// The one buffer in which frozen matrices that are held in few bits become whole, for the time of a product; 0 where none are.
std::int64_t dense_buffer_bytes(const config::ModelConfig& model, std::int64_t element_size);

// What a forward of `rows` tokens takes for which nothing is kept, beside training's own memory.
std::int64_t evaluation_bytes(const config::ModelConfig& model, std::int64_t rows, std::int64_t element_size);

// The fastest mix of policies whose activations of `rows` tokens fit into `available_bytes`.
std::vector<Keep> choose_keep(const config::ModelConfig& model, std::int64_t rows, std::int64_t element_size, std::int64_t available_bytes);

// "all kept", or "kept whole in 20 blocks, norms made again in 8".
std::string describe(const std::vector<Keep>& keep);

}  // namespace lockstep::model
