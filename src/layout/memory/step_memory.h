// What a rank sums the gradients of its micro-batches in, and which activations it recomputes beside them: both share what memory is left.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "config/run_config.h"
#include "layout/memory/logits.h"
#include "layout/recompute.h"

namespace lockstep::layout {

// f32: every addition. once: the weights' type, for the single micro-batch of a step. flushed: the weights' type for as many additions as
// that bears, and f32 sums behind it.
enum class GradientForm { f32, once, flushed };
// The form with the fewest bytes. Adapters have few gradients, and steps of many micro-batches: f32 whatever else.
GradientForm narrowest_form(const config::RunConfig& config, std::int64_t micro_batches);
std::int64_t bytes_of(GradientForm form, config::DType weights);
// Of a number in the share that a rank keeps of gradients which are cut.
std::int64_t bytes_of_sums(GradientForm form, config::DType weights);

// The form where memory is plenty.
GradientForm widest_form(const config::RunConfig& config, std::int64_t micro_batches);
// Of one gradient of the model as ranks exchange it.
std::int64_t wire_bytes(const config::RunConfig& config, GradientForm form);

// How often 16-bit gradients are added to between flushes: equal numbers then lose 0.2 % of their norm, at 1,024 times two thirds.
inline constexpr std::int64_t most_additions = 64;
// With this many micro-batches a step, and the output matrix in few chunks, no gradient is added to too often.
inline constexpr std::int64_t few_micro_batches = 8;
// Whether 16-bit gradients need f32 sums behind them.
inline bool needs_sums(GradientForm form, std::int64_t micro_batches) {
  return form == GradientForm::flushed && micro_batches > few_micro_batches;
}
// Chunks of logits a micro-step: so many additions to the output matrix's gradient, and one more where that is the embedding's too.
std::int64_t most_head_chunks(GradientForm form, std::int64_t micro_batches);

// Of one chunk, where so many bytes are allowed.
std::int64_t logits_bytes(const config::RunConfig& config, std::int64_t rows, std::int64_t allowed, GradientForm form,
                          std::int64_t micro_batches);

struct StepMemory {
  GradientForm gradients = GradientForm::f32;
  std::vector<Recompute> recompute;  // one per block
  std::int64_t room_for_sums = 0;    // flushed: bytes of the device's memory that are left for f32 sums
};

struct StepQuestion {
  const config::RunConfig& config;
  MicroBatch micro_batch;
  std::int64_t micro_batches = 1;  // a step
  int ranks = 1;
  std::int64_t gradient_elements = 0;  // of all trained units, padding included
  std::int64_t sum_elements = 0;       // kept beside them: shares of cut units, sums of micro-batches
  std::int64_t unclaimed_bytes = 0;    // free for gradients and activations together
  std::int64_t exchange_bytes = 0;     // of it, what gradients of cut units take on their way
  LogitsRoom logits = {};
};
// f32 gradients where they fit without more recomputation. agree: given this rank's answer, that of all ranks; they exchange gradients, so
// all take the same form.
StepMemory plan_step_memory(const StepQuestion& question, const std::function<bool(bool)>& agree);
// The plan that takes least, whatever it costs.
StepMemory least_step_memory(const config::RunConfig& config, std::int64_t micro_batches);

// What training `rows` tokens at once takes beside weights, gradients, optimizer states and activations.
std::int64_t reserved_bytes(const config::RunConfig& config, std::int64_t rows, int ranks);
// What an evaluation of `rows` tokens at once takes beside training's own memory.
std::int64_t evaluation_bytes(const config::RunConfig& config, std::int64_t rows);

}  // namespace lockstep::layout
