// Which GPUs and cores there are, from the driver's management library and the kernel.
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "base/text.h"
#include "front/launch/devices/devices.h"
#include "front/launch/devices/nvml.h"

namespace lockstep::launch {
namespace {

// Containers that were given the GPU but not the management library still show it here; memory stays unknown.
std::vector<Gpu> gpus_of_the_kernel_driver() {
  std::vector<Gpu> gpus;
  std::vector<std::filesystem::path> folders;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/driver/nvidia/gpus", error)) folders.push_back(entry.path());
  std::sort(folders.begin(), folders.end());  // named by bus, the order nvidia-smi counts in
  for (const auto& folder : folders) {
    Gpu gpu{.index = static_cast<int>(gpus.size()), .name = "NVIDIA GPU"};
    std::ifstream file(folder / "information");
    int minor = -1;
    for (std::string line; std::getline(file, line);) {
      const std::size_t colon = line.find(':');
      if (colon == std::string::npos) continue;
      const std::string value = base::trim(line.substr(colon + 1));
      if (line.starts_with("Model")) gpu.name = value;
      if (line.starts_with("GPU UUID")) gpu.uuid = value;
      if (line.starts_with("Device Minor")) minor = static_cast<int>(base::parse_integer(value).value_or(-1));
    }
    if (minor < 0 || ::access(("/dev/nvidia" + std::to_string(minor)).c_str(), R_OK) == 0) gpus.push_back(gpu);
  }
  return gpus;
}

}  // namespace

std::vector<Gpu> installed_gpus(std::string& problem) {
  const Nvml nvml;
  if (!nvml.present()) return gpus_of_the_kernel_driver();
  if (!nvml.started()) {
    problem = "the NVIDIA driver does not answer (" + nvml.problem() + "). Does nvidia-smi work?";
    return {};
  }
  std::vector<Gpu> gpus;
  for (int i = 0; i < nvml.count(); ++i) {
    GpuFacts facts = nvml.facts(i);
    const Nvml::Memory memory = nvml.memory(i).value_or(Nvml::Memory{});
    gpus.push_back({facts.index, std::move(facts.name), std::move(facts.uuid), memory.total_bytes, memory.free_bytes});
  }
  return gpus;
}

int usable_cores() {
  cpu_set_t set;
  int cores = ::sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : static_cast<int>(::sysconf(_SC_NPROCESSORS_ONLN));
  // A container's share of processor time, where the second version of control groups says it.
  std::ifstream quota_file("/sys/fs/cgroup/cpu.max");
  std::string quota;
  double period = 0;
  if (quota_file >> quota >> period && quota != "max" && period > 0) {
    const double share = base::parse_number(quota).value_or(0) / period;
    if (share >= 1) cores = std::min(cores, static_cast<int>(share));
  }
  return std::max(1, cores);
}

}  // namespace lockstep::launch
