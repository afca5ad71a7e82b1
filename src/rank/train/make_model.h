// The units of a run's model in memory, frozen or trained, with adapters beside them where lora asks; and how they begin.
#pragma once

#include <c10/core/Device.h>

#include <memory>
#include <string>
#include <vector>

#include "config/run_config.h"
#include "layout/memory/memory.h"
#include "rank/model/stage.h"
#include "rank/parallel/replicate.h"

namespace lockstep::train {

using layout::quantization_of;

// As parallel.shard spreads them over a mesh; without one there is this rank alone. Weights are not written yet. Gradients are of the
// weights' type (train/memory/gradients.h may choose another), those of adapters in f32.
parallel::Replica make_units(const config::RunConfig& config, at::Device device, const comm::Mesh* mesh = nullptr);
// For training: products in 8 bits where trainer.fp8 asks for them. Throws UserError where the device cannot.
void choose_precision(const config::RunConfig& config, model::Stage& model, at::Device device);

// Random weights everywhere.
void initialize_weights(const config::RunConfig& config, parallel::Replica& replica);
// The weights of model.path, with all adapters of lora.adapters but the last folded in. Returns what a person should know.
std::vector<std::string> load_weights(const config::RunConfig& config, parallel::Replica& replica);
// Adapters as they start beside weights that stand: they change nothing yet, and modules trained whole are copies; or the last
// of lora.adapters.
void initialize_adapters(const config::RunConfig& config, parallel::Replica& replica, model::Stage& model);

}  // namespace lockstep::train
