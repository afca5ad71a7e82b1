// Finds the functions of libnvidia-ml.so.1 and starts it.
#include "front/launch/devices/nvml_library.h"

#include <dlfcn.h>

#include <initializer_list>

namespace lockstep::launch {
namespace {

// The first of these names that the library has.
template <typename F>
bool load(void* handle, F& function, std::initializer_list<const char*> names) {
  for (const char* name : names) {
    function = reinterpret_cast<F>(::dlsym(handle, name));
    if (function != nullptr) return true;
  }
  return false;
}

}  // namespace

Nvml::Library::Library(const char* library) {
  handle = ::dlopen(library, RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) return;
  complete = load(handle, init, {"nvmlInit_v2"}) && load(handle, shutdown, {"nvmlShutdown"}) &&
             load(handle, count, {"nvmlDeviceGetCount_v2"}) && load(handle, by_index, {"nvmlDeviceGetHandleByIndex_v2"}) &&
             load(handle, name, {"nvmlDeviceGetName"}) && load(handle, uuid, {"nvmlDeviceGetUUID"}) &&
             load(handle, memory, {"nvmlDeviceGetMemoryInfo"}) && load(handle, error_text, {"nvmlErrorString"});
  load(handle, driver_version, {"nvmlSystemGetDriverVersion"});
  load(handle, cuda_version, {"nvmlSystemGetCudaDriverVersion_v2", "nvmlSystemGetCudaDriverVersion"});
  load(handle, pci, {"nvmlDeviceGetPciInfo_v3"});
  load(handle, capability, {"nvmlDeviceGetCudaComputeCapability"});
  load(handle, compute_mode, {"nvmlDeviceGetComputeMode"});
  load(handle, mig_mode, {"nvmlDeviceGetMigMode"});
  load(handle, ecc_errors, {"nvmlDeviceGetTotalEccErrors"});
  load(handle, utilization, {"nvmlDeviceGetUtilizationRates"});
  load(handle, power, {"nvmlDeviceGetPowerUsage"});
  load(handle, power_limit, {"nvmlDeviceGetEnforcedPowerLimit", "nvmlDeviceGetPowerManagementLimit"});
  load(handle, temperature, {"nvmlDeviceGetTemperature"});
  load(handle, clock, {"nvmlDeviceGetClockInfo"});
  load(handle, clock_max, {"nvmlDeviceGetMaxClockInfo"});
  load(handle, throttle, {"nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons"});
  load(handle, pcie_generation, {"nvmlDeviceGetCurrPcieLinkGeneration"});
  load(handle, pcie_generation_max, {"nvmlDeviceGetMaxPcieLinkGeneration"});
  load(handle, pcie_width, {"nvmlDeviceGetCurrPcieLinkWidth"});
  load(handle, pcie_width_max, {"nvmlDeviceGetMaxPcieLinkWidth"});
  load(handle, pcie_throughput, {"nvmlDeviceGetPcieThroughput"});
  load(handle, link_state, {"nvmlDeviceGetNvLinkState"});
  load(handle, link_version, {"nvmlDeviceGetNvLinkVersion"});
  load(handle, link_remote, {"nvmlDeviceGetNvLinkRemotePciInfo_v2"});
  load(handle, link_remote_kind, {"nvmlDeviceGetNvLinkRemoteDeviceType"});
  load(handle, fields, {"nvmlDeviceGetFieldValues"});
  if (!load(handle, processes, {"nvmlDeviceGetComputeRunningProcesses_v3", "nvmlDeviceGetComputeRunningProcesses_v2"}))
    load(handle, old_processes, {"nvmlDeviceGetComputeRunningProcesses"});
  load(handle, peer, {"nvmlDeviceGetP2PStatus"});
  load(handle, ancestor, {"nvmlDeviceGetTopologyCommonAncestor"});
  if (!complete) return;
  status = init();
  running = status == 0;
  Number there_are = 0;
  if (!running || count(&there_are) != 0) return;
  for (Number i = 0; i < there_are; ++i) {
    Device device = nullptr;
    if (by_index(i, &device) != 0) continue;  // not ours to use
    devices.push_back(device);
    indices.push_back(static_cast<int>(i));
  }
}

Nvml::Library::~Library() {
  if (running) shutdown();
  if (handle != nullptr) ::dlclose(handle);
}

}  // namespace lockstep::launch
