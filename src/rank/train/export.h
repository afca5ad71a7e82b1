// A run's weights, at its end, as the kind of folder that other programs load.
#pragma once

#include <filesystem>

#include "rank/hub/hub_writer.h"
#include "rank/train/run.h"

namespace lockstep::train {

// What goes along with a run's weights.
hub::HubExport hub_export_of(const config::RunConfig& config);
// What the adapters of a run belong to, as PEFT names it.
std::string base_model_of(const config::ModelConfig& model);

// RUN/model, from the run's weights. Collective; the first rank writes, the others bring it their shards, a unit at a time.
std::filesystem::path export_model(const Run& run);

// RUN/adapter, in PEFT's form, from the adapters this rank holds. One rank calls it.
std::filesystem::path export_adapter(const Run& run);

}  // namespace lockstep::train
