// Looks, and computes nothing.
#include "rank/verbs/probe.h"

#include <torch/headeronly/version.h>

#include <array>
#include <nlohmann/json.hpp>

#include "rank/hub/hub_folder.h"
#include "rank/kernels/plugin.h"

namespace lockstep::verbs {

std::string probe(const Arguments& arguments, at::Device device) {
  nlohmann::ordered_json found = {
      {"probe", true}, {"libtorch", TORCH_VERSION}, {"cuda", device.is_cuda()}, {"gpus", nlohmann::json::array()}};
  if (device.is_cuda()) {
    const kernels::CudaPlugin& plugin = kernels::cuda_plugin();
    for (int i = 0; i < plugin.device_count(); ++i) {
      std::array<char, 256> name{};
      plugin.device_name(i, name.data(), static_cast<int>(name.size()));
      found["gpus"].push_back({{"name", name.data()}, {"capability", plugin.capability(i)}});
    }
  }
  if (const std::string model = argument(arguments, "model"); !model.empty()) found["tensors"] = hub::HubFolder(model).tensors().size();
  return found.dump();
}

}  // namespace lockstep::verbs
