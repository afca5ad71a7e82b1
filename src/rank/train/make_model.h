// The model of a run in memory: its units, frozen or trained, with adapters beside them where lora asks, and the decoder over them.
#pragma once

#include <c10/core/Device.h>

#include <memory>

#include "config/run_config.h"
#include "rank/model/model.h"
#include "rank/parallel/replicate.h"

namespace lockstep::train {

// Weights are not written yet.
parallel::Replica make_units(const config::RunConfig& config, at::Device device);
std::unique_ptr<model::Decoder> make_decoder(const config::RunConfig& config, const parallel::Replica& replica);

// Random weights everywhere.
void initialize_weights(const config::RunConfig& config, parallel::Replica& replica);
// Adapters as they start beside weights that stand: they change nothing yet, and modules trained whole are copies.
void initialize_adapters(const config::RunConfig& config, parallel::Replica& replica, model::Decoder& decoder);

}  // namespace lockstep::train
