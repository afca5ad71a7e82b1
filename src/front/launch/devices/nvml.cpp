// Asks the NVIDIA driver's management library (loaded by name: the program runs where there is none) and the kernel about devices.
#include <dlfcn.h>
#include <sched.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <fstream>

#include "base/text.h"
#include "front/launch/devices/devices.h"

namespace lockstep::launch {
namespace {

// The part of NVML used here, by its stable names.
class Nvml {
 public:
  struct Memory {
    unsigned long long total, free, used;
  };
  using Device = void*;

  Nvml() {
    library_ = ::dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    if (library_ == nullptr) return;
    load(init, "nvmlInit_v2");
    load(shutdown, "nvmlShutdown");
    load(count, "nvmlDeviceGetCount_v2");
    load(by_index, "nvmlDeviceGetHandleByIndex_v2");
    load(name, "nvmlDeviceGetName");
    load(uuid, "nvmlDeviceGetUUID");
    load(memory, "nvmlDeviceGetMemoryInfo");
    load(error_text, "nvmlErrorString");
    if (complete_) status_ = init();
    started_ = complete_ && status_ == 0;
  }
  ~Nvml() {
    if (started_) shutdown();
    if (library_ != nullptr) ::dlclose(library_);
  }
  Nvml(const Nvml&) = delete;

  bool present() const { return library_ != nullptr; }
  bool started() const { return started_; }
  std::string problem() const { return complete_ ? error_text(status_) : "libnvidia-ml.so.1 lacks functions that are needed"; }

  int (*init)() = nullptr;
  int (*shutdown)() = nullptr;
  int (*count)(unsigned*) = nullptr;
  int (*by_index)(unsigned, Device*) = nullptr;
  int (*name)(Device, char*, unsigned) = nullptr;
  int (*uuid)(Device, char*, unsigned) = nullptr;
  int (*memory)(Device, Memory*) = nullptr;
  const char* (*error_text)(int) = nullptr;

 private:
  template <typename F>
  void load(F& function, const char* symbol) {
    function = reinterpret_cast<F>(::dlsym(library_, symbol));
    complete_ = complete_ && function != nullptr;
  }
  void* library_ = nullptr;
  bool complete_ = true;
  bool started_ = false;
  int status_ = 0;
};

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
  unsigned count = 0;
  if (nvml.count(&count) != 0) return {};
  std::vector<Gpu> gpus;
  for (unsigned i = 0; i < count; ++i) {
    Nvml::Device device = nullptr;
    if (nvml.by_index(i, &device) != 0) continue;  // not ours to use
    Gpu gpu{.index = static_cast<int>(i)};
    std::array<char, 96> text{};
    if (nvml.name(device, text.data(), text.size()) == 0) gpu.name = text.data();
    if (nvml.uuid(device, text.data(), text.size()) == 0) gpu.uuid = text.data();
    Nvml::Memory memory{};
    if (nvml.memory(device, &memory) == 0) {
      gpu.memory_bytes = memory.total;
      gpu.free_bytes = memory.free;
    }
    gpus.push_back(gpu);
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
