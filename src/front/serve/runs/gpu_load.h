// How busy and how full the GPUs of this machine are, for the frame of the page.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "front/launch/devices/nvml.h"

namespace lockstep::serve {

// One thread. Holds the driver's library open between read() and close().
class GpuLoad {
 public:
  // [{"id": 0, "busy": 0.98, "used_bytes": ..., "memory_bytes": ...}, ...], by the numbers of `lockstep devices`; what the driver does not
  // tell is null. Empty where there is no GPU.
  nlohmann::ordered_json read();
  void close() { nvml_.reset(); }

 private:
  void open();
  std::unique_ptr<launch::Nvml> nvml_;
  std::vector<int> handles_;  // of the visible ones
};

}  // namespace lockstep::serve
