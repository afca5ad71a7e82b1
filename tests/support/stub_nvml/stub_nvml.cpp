// Stands in for libnvidia-ml.so.1: says of GPUs what the file named by STUB_NVML says, "key value" a line, read at nvmlInit.
// Keys of a GPU begin with its number and a dot ("1.temperature 87"), those of all GPUs with "*."; what is not there is not supported.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <string>

namespace {

constexpr int not_supported = 3, not_enough_room = 7;
// Of each thread its own: a program asks from several.
std::map<std::string, std::string>& table() {
  static thread_local std::map<std::string, std::string> lines;
  return lines;
}

void read_table() {
  table().clear();
  const char* path = std::getenv("STUB_NVML");
  std::ifstream file(path == nullptr ? "" : path);
  std::string key;
  for (std::string value; file >> key && std::getline(file >> std::ws, value);) table()[key] = value;
}

const std::string* of_all(const std::string& key) {
  if (table().empty()) read_table();
  const auto found = table().find(key);
  return found == table().end() ? nullptr : &found->second;
}
// A device is its number, counted from 1: null is none.
int number_of(void* device) { return static_cast<int>(reinterpret_cast<std::intptr_t>(device)) - 1; }
const std::string* of(void* device, const std::string& key) {
  const std::string* own = of_all(std::to_string(number_of(device)) + "." + key);
  return own != nullptr ? own : of_all("*." + key);
}

template <typename N>
int give(const std::string* value, N* number) {
  if (value == nullptr) return not_supported;
  *number = static_cast<N>(std::stoull(*value, nullptr, 0));
  return 0;
}
int give(const std::string* value, char* text, unsigned size) {
  if (value == nullptr) return not_supported;
  std::snprintf(text, size, "%s", value->c_str());
  return 0;
}

struct Pci {
  char old_bus_id[16];
  unsigned domain, bus, device, pci_device_id, pci_subsystem_id;
  char bus_id[32];
};
struct Process {
  unsigned pid;
  unsigned long long memory;
  unsigned gpu_instance, compute_instance;
};
struct Field {
  unsigned id, scope;
  long long timestamp, latency_us;
  int type, status;
  unsigned long long value;
};

}  // namespace

extern "C" {

int nvmlInit_v2() {
  read_table();
  int status = 0;
  give(of_all("init"), &status);
  return status;
}
int nvmlShutdown() { return 0; }
const char* nvmlErrorString(int status) {
  return status == 9 ? "Driver Not Loaded" : status == 18 ? "Driver/library version mismatch" : "Unknown Error";
}
int nvmlDeviceGetCount_v2(unsigned* count) { return give(of_all("gpus"), count); }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void** device) {
  *device = reinterpret_cast<void*>(static_cast<std::intptr_t>(index) + 1);
  return 0;
}
int nvmlDeviceGetName(void* device, char* text, unsigned size) { return give(of(device, "name"), text, size); }
int nvmlDeviceGetUUID(void* device, char* text, unsigned size) {
  std::snprintf(text, size, "GPU-%08d-stub", number_of(device));
  return 0;
}
int nvmlDeviceGetMemoryInfo(void* device, unsigned long long* memory) {
  if (give(of(device, "memory"), &memory[0]) != 0) return not_supported;
  if (give(of(device, "used"), &memory[2]) != 0) memory[2] = 0;
  memory[1] = memory[0] - memory[2];
  return 0;
}

#ifndef OLD_DRIVER
int nvmlSystemGetDriverVersion(char* text, unsigned size) { return give(of_all("driver"), text, size); }
int nvmlSystemGetCudaDriverVersion_v2(int* version) { return give(of_all("cuda"), version); }
int nvmlDeviceGetPciInfo_v3(void* device, Pci* pci) { return give(of(device, "bus"), pci->bus_id, sizeof pci->bus_id); }
int nvmlDeviceGetCudaComputeCapability(void* device, int* major, int* minor) {
  return give(of(device, "major"), major) != 0 ? not_supported : give(of(device, "minor"), minor);
}
int nvmlDeviceGetComputeMode(void* device, int* mode) { return give(of(device, "compute_mode"), mode); }
int nvmlDeviceGetMigMode(void* device, unsigned* now, unsigned* later) {
  *later = 0;
  return give(of(device, "mig"), now);
}
int nvmlDeviceGetTotalEccErrors(void* device, int, int, unsigned long long* errors) { return give(of(device, "ecc"), errors); }
int nvmlDeviceGetUtilizationRates(void* device, unsigned* rates) {
  read_table();  // it changes from second to second
  rates[1] = 0;
  return give(of(device, "utilization"), &rates[0]);
}
int nvmlDeviceGetPowerUsage(void* device, unsigned* milliwatts) { return give(of(device, "power"), milliwatts); }
int nvmlDeviceGetEnforcedPowerLimit(void* device, unsigned* milliwatts) { return give(of(device, "power_limit"), milliwatts); }
int nvmlDeviceGetTemperature(void* device, int, unsigned* celsius) { return give(of(device, "temperature"), celsius); }
int nvmlDeviceGetClockInfo(void* device, int kind, unsigned* mhz) { return give(of(device, kind == 1 ? "sm_clock" : "memory_clock"), mhz); }
int nvmlDeviceGetMaxClockInfo(void* device, int kind, unsigned* mhz) {
  return give(of(device, kind == 1 ? "sm_clock_max" : "memory_clock_max"), mhz);
}
int nvmlDeviceGetCurrentClocksThrottleReasons(void* device, unsigned long long* bits) { return give(of(device, "throttle"), bits); }
int nvmlDeviceGetCurrPcieLinkGeneration(void* device, unsigned* number) { return give(of(device, "generation"), number); }
int nvmlDeviceGetMaxPcieLinkGeneration(void* device, unsigned* number) { return give(of(device, "generation_max"), number); }
int nvmlDeviceGetCurrPcieLinkWidth(void* device, unsigned* number) { return give(of(device, "width"), number); }
int nvmlDeviceGetMaxPcieLinkWidth(void* device, unsigned* number) { return give(of(device, "width_max"), number); }
int nvmlDeviceGetPcieThroughput(void* device, int direction, unsigned* kib) {
  return give(of(device, direction == 0 ? "sent" : "received"), kib);
}
int nvmlDeviceGetNvLinkState(void* device, unsigned link, unsigned* active) {
  return give(of(device, "link." + std::to_string(link)), active);
}
int nvmlDeviceGetNvLinkVersion(void* device, unsigned link, unsigned* version) { return give(of(device, "link_version"), version); }
int nvmlDeviceGetNvLinkRemotePciInfo_v2(void* device, unsigned link, Pci* pci) {
  return give(of(device, "remote." + std::to_string(link)), pci->bus_id, sizeof pci->bus_id);
}
int nvmlDeviceGetNvLinkRemoteDeviceType(void* device, unsigned, int* kind) { return give(of(device, "remote_kind"), kind); }
int nvmlDeviceGetFieldValues(void* device, int count, Field* fields) {
  for (int i = 0; i < count; ++i)
    fields[i].status = give(of(device, fields[i].id == 138 ? "link_sent" : "link_received"), &fields[i].value);
  return 0;
}
// "processes 4711:1073741824 4712:5"
int nvmlDeviceGetComputeRunningProcesses_v3(void* device, unsigned* count, Process* processes) {
  const std::string* list = of(device, "processes");
  unsigned found = 0, room = *count;
  for (const char* at = list == nullptr ? "" : list->c_str(); *at != '\0'; ++found) {
    char* end = nullptr;
    Process process{};
    process.pid = static_cast<unsigned>(std::strtoul(at, &end, 10));
    process.memory = *end == ':' ? std::strtoull(end + 1, &end, 10) : ~0ULL;
    if (found < room) processes[found] = process;
    at = *end == ' ' ? end + 1 : end;
  }
  *count = found;
  return found > room ? not_enough_room : 0;
}
int nvmlDeviceGetP2PStatus(void* first, void*, int, int* status) { return give(of(first, "peer"), status); }
int nvmlDeviceGetTopologyCommonAncestor(void* first, void*, int* level) { return give(of(first, "ancestor"), level); }
#endif
}
