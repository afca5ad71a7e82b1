// What the makers say their matrix units can do: the denominator of MFU.
#pragma once

#include <optional>
#include <string>

#include "config/run_config.h"

namespace lockstep::train {

// Operations a second without sparsity; nothing where the table has no number for the device or dtype.
std::optional<double> dense_peak_flops(const std::string& device, config::DType dtype);

}  // namespace lockstep::train
