// Activations: what a block makes, which of it each recompute policy (trainer.recompute) gives up, what that saves and what it costs.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "config/run_config.h"

namespace lockstep::layout {

// The policy of one block. none: every activation is kept for backward. norms: outputs of norms and SwiGLU are recomputed, which is cheap.
// qkv: queries, keys and values too, one matmul. blocks: everything but the block's input; backward runs forward again. Results are the
// same bits whichever is chosen; the memory is not. `automatic` is a wish of the settings, no policy of a block.
using config::Recompute;

// One activation of a block, for one row (token) of a micro-batch.
struct Activation {
  std::string_view name;
  std::int64_t bytes;
  Recompute given_up_from;  // the mildest policy that recomputes it; automatic: none does
};
std::vector<Activation> block_activations(const config::ModelConfig& model, std::int64_t element_size);

// Bytes that one row of a micro-batch takes, by the policy that gives them up first.
struct ActivationBytes {
  std::int64_t input = 0;    // kept by every policy, per block
  std::int64_t blocks = 0;   // what attention and the matmuls but qkv made, per block
  std::int64_t qkv = 0;      // q, k and v, per block
  std::int64_t norms = 0;    // norms and SwiGLU, per block
  std::int64_t working = 0;  // at most, shared by all blocks: scratch, gradients of activations, the head's rows
  std::int64_t head = 0;     // of that, at most, what is there beside the head's logits

  // What a block under the policy keeps to itself, and what one place for all such blocks holds while one of them is at work.
  std::int64_t kept(Recompute policy) const;
  std::int64_t shared(Recompute policy) const;

  bool operator==(const ActivationBytes&) const = default;
};
ActivationBytes activation_bytes(const config::ModelConfig& model, std::int64_t element_size);

// Workspaces of matmuls and attention, and room for the allocator's rounding; other ranks need buffers too.
inline constexpr std::int64_t activation_reserve_bytes = std::int64_t{1} << 30;
inline constexpr std::int64_t ranks_reserve_bytes = std::int64_t{1} << 29;

// The one buffer in which quantized matrices become dense, for the time of a product; 0 where none are quantized.
std::int64_t dense_buffer_bytes(const config::ModelConfig& model, std::int64_t element_size);

// What backward recomputes for one row of a block, in time: the bytes that a device moves meanwhile. time: tokens per sample.
double recompute_cost(const config::ModelConfig& model, std::int64_t time, std::int64_t element_size, Recompute policy);

// What a forward of `rows` tokens takes for which nothing is kept, beside training's own memory.
std::int64_t evaluation_bytes(const config::ModelConfig& model, std::int64_t rows, std::int64_t element_size);

struct MicroBatch {
  std::int64_t samples, time;
  std::int64_t rows() const { return samples * time; }
};
// A layer as the choice of policies sees it.
struct LayerCost {
  ActivationBytes bytes;
  double norms, qkv, blocks;  // recompute_cost of each policy

  double cost(Recompute policy) const;
  bool operator==(const LayerCost&) const = default;
};
// Of the mixes of policies that fit into `room` bytes per row, the one that costs least: all are tried where layers are equal. Where they
// are not, policies are made stricter step by step, where a byte costs least, which is near the best. Where nothing fits, `blocks`
// everywhere.
std::vector<Recompute> cheapest_policies(const std::vector<LayerCost>& layers, std::int64_t room);

// Of the mixes of policies whose activations fit into `available_bytes`, the one that costs least; where none fits, `blocks` everywhere.
std::vector<Recompute> choose_recompute(const config::ModelConfig& model, const MicroBatch& batch, std::int64_t element_size,
                                        std::int64_t available_bytes);
// One policy per block, as trainer.recompute says; `automatic` fills the memory that is available to activations.
std::vector<Recompute> recompute_for(const config::RunConfig& config, const MicroBatch& batch, std::int64_t element_size,
                                     std::int64_t available_bytes);

// What a micro-batch takes under these policies, one per block, but for logits.
std::int64_t needed_bytes(const config::ModelConfig& model, const MicroBatch& batch, std::int64_t element_size,
                          const std::vector<Recompute>& policies);

// "all kept", or "kept whole in 20 blocks, norms recomputed in 8".
std::string describe(const std::vector<Recompute>& policies);

}  // namespace lockstep::layout
