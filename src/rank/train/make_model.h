// The model of a run in memory: its units, frozen or trained, with adapters beside them where lora asks, and the decoder over them.
#pragma once

#include <c10/core/Device.h>

#include <memory>
#include <string>
#include <vector>

#include "config/run_config.h"
#include "layout/memory/memory.h"
#include "rank/model/model.h"
#include "rank/parallel/replicate.h"

namespace lockstep::train {

using layout::quantization_of;

// Weights are not written yet. Gradients are of the weights' type (train/memory/gradients.h may choose another), those of adapters in f32.
parallel::Replica make_units(const config::RunConfig& config, at::Device device);
std::unique_ptr<model::Decoder> make_decoder(const config::RunConfig& config, const parallel::Replica& replica);
// For training: products in 8 bits where trainer.fp8 asks for them. Throws UserError where the device cannot.
void choose_precision(const config::RunConfig& config, model::Decoder& decoder, at::Device device);

// Random weights everywhere.
void initialize_weights(const config::RunConfig& config, parallel::Replica& replica);
// The weights of model.path, with all adapters of lora.adapters but the last folded in. Returns what a person should know.
std::vector<std::string> load_weights(const config::RunConfig& config, parallel::Replica& replica);
// Adapters as they start beside weights that stand: they change nothing yet, and modules trained whole are copies; or the last
// of lora.adapters.
void initialize_adapters(const config::RunConfig& config, parallel::Replica& replica, model::Decoder& decoder);

}  // namespace lockstep::train
