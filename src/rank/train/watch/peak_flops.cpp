// Dense peaks by the name that the driver gives a device, as the makers' data sheets state them, without sparsity.
#include "rank/train/watch/peak_flops.h"

#include <utility>

namespace lockstep::train {

std::optional<PeakFlops> peak_flops(const std::string& device, config::DType dtype) {
  if (dtype == config::DType::f32) return std::nullopt;
  static const std::pair<const char*, PeakFlops> peaks[] = {
      {"H200", {989.4e12, 1978.9e12}}, {"H100", {989.4e12, 1978.9e12}},    {"A100", {312e12, 0}},
      {"L40S", {362e12, 733e12}},      {"RTX 4090", {165.2e12, 330.3e12}}, {"RTX 3090", {71e12, 0}}};
  for (const auto& [name, peak] : peaks) {
    if (device.find(name) != std::string::npos) return peak;
  }
  return std::nullopt;
}

double ideal_seconds(const layout::Flops& flops, const PeakFlops& peak, bool fp8) {
  const double projections = fp8 && peak.fp8 > 0 ? peak.fp8 : peak.dense;
  return flops.projections / projections + flops.others / peak.dense;
}

}  // namespace lockstep::train
