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
  std::int64_t matmuls;  // what attention and the matmuls but qkv made, per block
  std::int64_t qkv;      // q, k and v, per block
  std::int64_t cheap;    // norms and SwiGLU, per block
  std::int64_t working;  // shared by all blocks: scratch, gradients of activations, the head's rows

  // What a block under the policy keeps to itself, and what one place for all such blocks holds while one of them is at work.
  std::int64_t kept(Keep keep) const;
  std::int64_t shared(Keep keep) const;
};
// Logits of a chunk, workspaces of matmuls and attention, and room for the allocator's rounding; other ranks need buffers too.
inline constexpr std::int64_t activation_reserve_bytes = std::int64_t{1} << 30;
inline constexpr std::int64_t ranks_reserve_bytes = std::int64_t{1} << 29;
ActivationBytes activation_bytes(const config::ModelConfig& model, std::int64_t element_size);

// The one buffer in which frozen matrices that are held in few bits become whole, for the time of a product; 0 where none are.
std::int64_t dense_buffer_bytes(const config::ModelConfig& model, std::int64_t element_size);

// What backward makes again for one row of a block, in time: the bytes that a device moves meanwhile. time: tokens a sample.
double recompute_cost(const config::ModelConfig& model, std::int64_t time, std::int64_t element_size, Keep keep);

// What a forward of `rows` tokens takes for which nothing is kept, beside training's own memory.
std::int64_t evaluation_bytes(const config::ModelConfig& model, std::int64_t rows, std::int64_t element_size);

struct MicroBatch {
  std::int64_t samples, time;
  std::int64_t rows() const { return samples * time; }
};
// Of the mixes of policies whose activations fit into `available_bytes`, the one that costs least; where none fits, inputs alone.
std::vector<Keep> choose_keep(const config::ModelConfig& model, const MicroBatch& batch, std::int64_t element_size,
                              std::int64_t available_bytes);

// What a micro-batch takes under these policies, one a block.
std::int64_t needed_bytes(const config::ModelConfig& model, const MicroBatch& batch, std::int64_t element_size,
                          const std::vector<Keep>& keep);

// "all kept", or "kept whole in 20 blocks, norms made again in 8".
std::string describe(const std::vector<Keep>& keep);

}  // namespace lockstep::model
