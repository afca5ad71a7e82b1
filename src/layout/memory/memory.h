// What one rank holds in memory, part by part, from the settings alone. Parts that are exact equal the rank's own buffers to the byte.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "layout/memory/logits.h"
#include "layout/memory/step_memory.h"
#include "layout/unit.h"

namespace lockstep::layout {

inline constexpr std::int64_t f32_bytes = 4;

// A unit and how a rank holds it.
struct HeldUnit {
  UnitSpec spec;
  Holding holding;
  FlatLayout flat;
};
// The units of a run in forward order, those of the model first, then those of its adapters.
std::vector<HeldUnit> held_units(const config::RunConfig& config);
// Whether the matrix that makes logits is trained, as itself or beside frozen ones.
bool trains_output_matrix(const std::vector<HeldUnit>& units, const config::RunConfig& config);
// How the model's units are held, and how adapters beside them are.
Holding model_holding(const config::RunConfig& config);
Holding adapter_holding(const config::RunConfig& config);
Quantization quantization_of(const config::ModelConfig& model);

// Bytes of a unit's optimizer states under trainer.optimizer.
std::int64_t state_bytes(const HeldUnit& unit, config::Optimizer method);
// Keys and values of `sequences` texts of so many tokens, in room that grows by steps of 64.
inline constexpr std::int64_t kv_cache_step = 64;
std::int64_t kv_cache_bytes(const config::ModelConfig& model, std::int64_t sequences, std::int64_t tokens);

enum class Part {
  weights,        // trained, in the type that forward reads
  frozen,         // frozen and dense
  quantized,      // frozen: codes and scales
  adapters,       // and modules trained whole beside frozen ones
  masters,        // f32, of 16-bit weights that are trained
  gradients,      // of all trained units, in one buffer
  gradient_sums,  // f32 behind 16-bit gradients
  states,         // of the optimizer
  slots,          // where units that are cut between ranks are whole while they are open
  activations,    // kept for backward, and what blocks share
  dense_copy,     // the quantized matrix in use, dense
  logits,         // one chunk
  adapter_work,   // buffers of one adapted matrix at a time
  fp8,            // 8-bit copies
  communication,  // copies on their way
  samples,        // keys and values of texts written between steps
  communicators,  // buffers of the library that moves bytes
  reserve,        // the device's context, workspaces, attention's backward, the allocator's rounding
};
std::string_view name_of(Part part);

struct PartBytes {
  Part part;
  std::int64_t bytes = 0;
  bool exact = true;  // false: at most, or an estimate
};

// trainer.offload_checkpoints: inputs of recomputed blocks wait in host memory and pass through so many buffers of the device.
inline constexpr std::int64_t offload_buffers = 2;

struct RankMemory {
  StepMemory step;                   // form of gradients, policies of blocks
  std::vector<PartBytes> parts;      // those that take anything, in the order above
  std::int64_t offloaded_bytes = 0;  // of activations, in host memory

  std::int64_t of(Part part) const;
  void add_to(Part part, std::int64_t bytes);
  std::int64_t tensors() const;  // the most that they hold at once: no gradient is on its way yet while the head has its logits
  std::int64_t total() const;    // and what is beside tensors: what has to be free
};

struct MemoryWish {
  int ranks = 1;
  bool on_gpu = true;
  std::optional<std::int64_t> device_bytes = {};  // what trainer.recompute = auto and gradients may fill; nothing: all that they like
};
// What is there beside a micro-batch: tables of positions, keys and values of texts written between steps.
std::int64_t beside_steps_bytes(const config::RunConfig& config, int ranks);
// Beside the units themselves, what gathers and reductions of cut ones take on their way, at most (f32 gradients); 0 where units are whole.
std::int64_t exchange_bytes(const config::RunConfig& config, int ranks, bool on_gpu);
// batch: config::plan_batch() for so many ranks.
RankMemory rank_memory(const config::RunConfig& config, const config::BatchPlan& batch, const MemoryWish& wish);

}  // namespace lockstep::layout
