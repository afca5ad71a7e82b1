// The NVIDIA driver's management library, loaded by name: the one place that asks it. Where a driver does not know a number it is absent.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::launch {

// One end of an NVLink.
struct NvLink {
  int number = 0;
  bool active = false;
  enum class Remote { unknown, gpu, nvswitch, other } remote = Remote::unknown;
  std::string remote_bus_id = {};  // of the GPU or switch at the other end
  std::optional<int> version = {};
};

// What stays as it is while the driver runs.
struct GpuFacts {
  int index = 0;  // as nvidia-smi counts
  std::string name = {}, uuid = {};
  std::string bus_id = {};  // "00000000:04:00.0"
  std::optional<std::uint64_t> memory_bytes = {};
  std::optional<int> capability_major = {}, capability_minor = {};
  std::optional<int> sm_clock_max_mhz = {}, memory_clock_max_mhz = {};
  std::optional<int> pcie_generation_max = {}, pcie_width_max = {};
  enum class Use { shared, one_process, nobody };  // nvidia-smi -c: default, exclusive, prohibited
  std::optional<Use> use = {};
  std::optional<bool> mig = {};
  std::optional<std::uint64_t> uncorrected_errors = {};  // of its memory (ECC) since the driver was loaded
};

// Why clocks are lower than they could be; an idle GPU's, and those that a person set, are not here.
enum class Throttle { power_cap, hardware_slowdown, sync_boost, software_thermal, hardware_thermal, power_brake };
std::string_view name_of(Throttle reason);   // "power_cap": for files
std::string_view describe(Throttle reason);  // "at its power limit"

// What changes from second to second.
struct GpuReading {
  std::optional<std::uint64_t> memory_used_bytes = {}, memory_free_bytes = {};
  std::optional<int> utilization_percent = {};         // of the last moment, some kernel ran
  std::optional<int> memory_utilization_percent = {};  // memory was read or written
  std::optional<double> power_w = {}, power_limit_w = {};
  std::optional<int> temperature_c = {};
  std::optional<int> sm_clock_mhz = {}, memory_clock_mhz = {};
  std::optional<std::vector<Throttle>> throttled = {};  // empty: not at all
  std::optional<int> pcie_generation = {}, pcie_width = {};
  std::optional<double> pcie_sent_bytes_per_s = {}, pcie_received_bytes_per_s = {};
  std::optional<std::uint64_t> nvlink_sent_bytes = {}, nvlink_received_bytes = {};  // counted since the driver was loaded, all links
};

struct GpuProcess {
  pid_t pid = 0;  // as the driver counts: inside a container another than the container's own
  std::optional<std::uint64_t> memory_bytes = {};
};

std::string describe(const GpuProcess& process);  // "pid 4711 python, 2.0 GiB"

// What two GPUs of a machine are to each other.
struct GpuPair {
  std::optional<bool> reads = {}, writes = {};  // each may reach the other's memory directly
  std::string why_not = {};                     // in the driver's words, where they may not
  int nvlinks = 0;                              // active ones from the first that end at the second, or at a switch that both are on
  std::string path = {};                        // of PCIe: "one switch", "several switches", "a host bridge", "between sockets"
};

// From one thread at a time. Functions that an old driver lacks, or a GPU does not support, leave their numbers absent.
class Nvml {
 public:
  explicit Nvml(const char* library = "libnvidia-ml.so.1");  // another name in tests
  ~Nvml();
  Nvml(const Nvml&) = delete;
  Nvml& operator=(const Nvml&) = delete;

  bool present() const;         // the library is there
  bool started() const;         // and the driver answers; all below is empty otherwise
  std::string problem() const;  // why present() but not started()

  std::string driver_version() const;       // "580.65.06"
  std::optional<int> cuda_version() const;  // the newest that the driver runs: 13000 is 13.0

  int count() const;  // of handles that were given to us
  GpuFacts facts(int gpu) const;
  struct Memory {
    std::uint64_t total_bytes = 0, free_bytes = 0, used_bytes = 0;
  };
  std::optional<Memory> memory(int gpu) const;
  std::vector<NvLink> links(int gpu) const;
  struct Cost {
    bool pcie_traffic = true;  // the driver counts for 20 ms a direction
  };
  GpuReading read(int gpu, Cost cost) const;
  GpuReading read(int gpu) const { return read(gpu, Cost{}); }
  std::vector<GpuProcess> processes(int gpu) const;
  GpuPair pair(int first, int second) const;

 private:
  struct Library;
  std::unique_ptr<Library> library_;
};

}  // namespace lockstep::launch
