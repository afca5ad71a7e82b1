// The functions of libnvidia-ml.so.1 that are used, by their stable names, with the structures that they fill.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "front/launch/devices/nvml.h"

namespace lockstep::launch {

struct Nvml::Library {
  using Device = void*;
  using Number = unsigned;
  using Large = unsigned long long;
  struct Memory {
    Large total, free, used;
  };
  struct Rates {
    Number gpu, memory;
  };
  struct Pci {
    char old_bus_id[16];
    Number domain, bus, device, pci_device_id, pci_subsystem_id;
    char bus_id[32];
  };
  struct Process {  // of the third version of the call
    Number pid;
    Large memory;
    Number gpu_instance, compute_instance;
  };
  struct OldProcess {  // of the first
    Number pid;
    Large memory;
  };
  struct Field {
    Number id, scope;
    long long timestamp, latency_us;
    int type, status;
    union {
      double real;
      Number number;
      Large large;
    } value;
  };

  explicit Library(const char* name);
  ~Library();
  Library(const Library&) = delete;
  Library& operator=(const Library&) = delete;

  // Calls that every driver has.
  int (*init)() = nullptr;
  int (*shutdown)() = nullptr;
  int (*count)(Number*) = nullptr;
  int (*by_index)(Number, Device*) = nullptr;
  int (*name)(Device, char*, Number) = nullptr;
  int (*uuid)(Device, char*, Number) = nullptr;
  int (*memory)(Device, Memory*) = nullptr;
  const char* (*error_text)(int) = nullptr;

  // Calls that some lack.
  int (*driver_version)(char*, Number) = nullptr;
  int (*cuda_version)(int*) = nullptr;
  int (*pci)(Device, Pci*) = nullptr;
  int (*capability)(Device, int*, int*) = nullptr;
  int (*compute_mode)(Device, int*) = nullptr;
  int (*mig_mode)(Device, Number*, Number*) = nullptr;
  int (*ecc_errors)(Device, int, int, Large*) = nullptr;
  int (*utilization)(Device, Rates*) = nullptr;
  int (*power)(Device, Number*) = nullptr;
  int (*power_limit)(Device, Number*) = nullptr;
  int (*temperature)(Device, int, Number*) = nullptr;
  int (*clock)(Device, int, Number*) = nullptr;
  int (*clock_max)(Device, int, Number*) = nullptr;
  int (*throttle)(Device, Large*) = nullptr;
  int (*pcie_generation)(Device, Number*) = nullptr;
  int (*pcie_generation_max)(Device, Number*) = nullptr;
  int (*pcie_width)(Device, Number*) = nullptr;
  int (*pcie_width_max)(Device, Number*) = nullptr;
  int (*pcie_throughput)(Device, int, Number*) = nullptr;
  int (*link_state)(Device, Number, Number*) = nullptr;
  int (*link_version)(Device, Number, Number*) = nullptr;
  int (*link_remote)(Device, Number, Pci*) = nullptr;
  int (*link_remote_kind)(Device, Number, int*) = nullptr;
  int (*fields)(Device, int, Field*) = nullptr;
  int (*processes)(Device, Number*, Process*) = nullptr;
  int (*old_processes)(Device, Number*, OldProcess*) = nullptr;
  int (*peer)(Device, Device, int, int*) = nullptr;
  int (*ancestor)(Device, Device, int*) = nullptr;

  void* handle = nullptr;
  bool complete = true;
  bool running = false;
  int status = 0;
  std::vector<Device> devices;
  std::vector<int> indices;  // as nvidia-smi counts, of each device
};

}  // namespace lockstep::launch
