// Through the driver's management library.
#include "front/serve/runs/gpu_load.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "front/launch/devices/devices.h"

namespace lockstep::serve {
namespace {

using Json = nlohmann::ordered_json;

}  // namespace

void GpuLoad::open() {
  nvml_ = std::make_unique<launch::Nvml>();
  handles_.clear();
  std::vector<launch::Gpu> installed;
  for (int handle = 0; handle < nvml_->count(); ++handle) {
    const launch::GpuFacts facts = nvml_->facts(handle);
    installed.push_back({.index = facts.index, .name = facts.name, .uuid = facts.uuid});
  }
  const auto variable = launch::lookup(launch::process_environment(), "CUDA_VISIBLE_DEVICES");
  for (const launch::VisibleGpu& one : launch::visible_gpus(installed, variable)) {
    const auto found = std::find_if(installed.begin(), installed.end(), [&](const launch::Gpu& gpu) { return gpu.uuid == one.gpu.uuid; });
    handles_.push_back(static_cast<int>(found - installed.begin()));
  }
}

Json GpuLoad::read() {
  if (!nvml_) open();
  Json list = Json::array();
  for (std::size_t id = 0; id < handles_.size(); ++id) {
    const launch::GpuReading now = nvml_->read(handles_[id], {.pcie_traffic = false});
    const auto memory = nvml_->memory(handles_[id]);
    list.push_back({{"id", id},
                    {"busy", now.utilization_percent ? Json(*now.utilization_percent / 100.0) : Json(nullptr)},
                    {"used_bytes", memory ? Json(memory->used_bytes) : Json(nullptr)},
                    {"memory_bytes", memory ? Json(memory->total_bytes) : Json(nullptr)}});
  }
  return list;
}

}  // namespace lockstep::serve
