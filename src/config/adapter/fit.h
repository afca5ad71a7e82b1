// Whether a PEFT folder belongs to a model: its targets and its tensors compared with the model's matrices, before anything is made.
#pragma once

#include <filesystem>

#include "config/run_config.h"

namespace lockstep::config {

enum class AdapterUse {
  go_on,  // trained further, or generated with
  fold,   // into weights in memory
  merge,  // into a folder that is written
};

// Throws UserError that says what does not fit, which base the adapter was made for and which is here. Reads the header of the adapter's
// weights alone.
void check_adapter_fits(const std::filesystem::path& folder, const ModelConfig& model, AdapterUse use);

// DIR/adapter_model.safetensors; UserError where it is not there.
std::filesystem::path adapter_weights_file(const std::filesystem::path& folder);

}  // namespace lockstep::config
