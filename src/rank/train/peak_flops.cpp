// Dense peaks in bf16 and f16, by the name that the driver gives a device.
#include "rank/train/peak_flops.h"

#include <utility>

namespace lockstep::train {

std::optional<double> dense_peak_flops(const std::string& device, config::DType dtype) {
  if (dtype == config::DType::f32) return std::nullopt;
  static const std::pair<const char*, double> peaks[] = {{"H200", 989.4e12}, {"H100", 989.4e12},     {"A100", 312e12},
                                                         {"L40S", 362e12},   {"RTX 4090", 165.2e12}, {"RTX 3090", 71e12}};
  for (const auto& [name, flops] : peaks) {
    if (device.find(name) != std::string::npos) return flops;
  }
  return std::nullopt;
}

}  // namespace lockstep::train
