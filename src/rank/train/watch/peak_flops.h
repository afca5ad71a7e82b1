// What the makers say their matrix units can do: the denominator of MFU.
#pragma once

#include <optional>
#include <string>

#include "config/run_config.h"
#include "layout/flops.h"

namespace lockstep::train {

// Operations a second without sparsity.
struct PeakFlops {
  double dense = 0;  // in the model's 16-bit dtype
  double fp8 = 0;    // 0: the device has none
};
// Nothing where the table has no numbers for the device, or the dtype is f32.
std::optional<PeakFlops> peak_flops(const std::string& device, config::DType dtype);

// Seconds that a device at its peak would take for one token, each operation in the format it is made in. MFU is this over the measured
// seconds a token.
double ideal_seconds(const layout::Flops& flops, const PeakFlops& peak, bool fp8);

}  // namespace lockstep::train
