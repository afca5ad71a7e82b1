// What a run sums the gradients of its micro-batches in, and which activations it keeps beside them: both share what memory is left.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "config/run_config.h"
#include "layout/memory/step_memory.h"
#include "rank/model/stage.h"
#include "rank/parallel/gradient_sums.h"
#include "rank/parallel/replicate.h"

namespace lockstep::train {

using layout::GradientForm;
using MemoryPlan = layout::StepMemory;

struct MemoryQuestion {
  const config::RunConfig& config;
  const config::BatchPlan& batch;
  std::int64_t time;  // tokens of a sample
  int ranks = 1;
  std::optional<std::int64_t> free_bytes = {};  // of the device; it is asked where this is not given
};

// To be asked when weights, gradients (in any form) and moments stand in memory. f32 where it fits without more activations recomputed.
// agree: given this rank's answer, that of all ranks; they exchange gradients, so all take the same form.
MemoryPlan plan_memory(const MemoryQuestion& question, const parallel::Replica& replica, const std::function<bool(bool)>& agree);

// The plan that takes least, whatever it costs.
MemoryPlan least_memory(const MemoryQuestion& question);

// Gradients become what the plan says, all zero, and the model keeps to it. Whoever listens to gradients comes later. Returns the f32 sums
// behind them, null where none are needed.
std::unique_ptr<parallel::GradientSums> apply(const MemoryPlan& plan, const MemoryQuestion& question, parallel::Replica& replica,
                                              model::Stage& model);

// "f32", "bf16, flushed into f32 every 64 additions (on the host)".
std::string describe(const MemoryPlan& plan, const config::RunConfig& config, const parallel::Replica& replica,
                     const parallel::GradientSums* sums);

}  // namespace lockstep::train
