// Asks the management library and gives its numbers units and names.
#include "front/launch/devices/nvml.h"

#include <algorithm>
#include <array>
#include <fstream>
#include <set>

#include "base/error.h"
#include "base/text.h"
#include "front/launch/devices/nvml_library.h"

namespace lockstep::launch {
namespace {

constexpr int most_links = 18;  // of a GPU: Hopper and Blackwell have so many
constexpr int not_enough_room = 7;

// A call that may be missing, asked for one number.
template <typename N, typename F, typename... Args>
std::optional<N> ask(F function, Args... args) {
  N number{};
  if (function == nullptr || function(args..., &number) != 0) return std::nullopt;
  return number;
}

template <typename F, typename... Args>
std::optional<int> ask_integer(F function, Args... args) {
  const auto number = ask<unsigned>(function, args...);
  return number ? std::optional(static_cast<int>(*number)) : std::nullopt;
}

template <typename F, typename... Args>
std::string ask_text(F function, Args... args) {
  std::array<char, 96> text{};
  return function != nullptr && function(args..., text.data(), static_cast<unsigned>(text.size())) == 0 ? text.data() : "";
}

std::optional<double> scaled(std::optional<unsigned> number, double unit) { return number ? std::optional(*number * unit) : std::nullopt; }

std::vector<Throttle> reasons_in(unsigned long long bits) {
  constexpr std::pair<unsigned long long, Throttle> known[] = {
      {0x04, Throttle::power_cap},        {0x08, Throttle::hardware_slowdown}, {0x10, Throttle::sync_boost},
      {0x20, Throttle::software_thermal}, {0x40, Throttle::hardware_thermal},  {0x80, Throttle::power_brake},
  };
  std::vector<Throttle> reasons;
  for (const auto& [bit, reason] : known) {
    if ((bits & bit) != 0) reasons.push_back(reason);
  }
  return reasons;
}

std::string words_for_peer_status(int status) {
  switch (status) {
    case 1: return "the chipset does not support it";
    case 2: return "the GPU does not support it";
    case 3: return "the way between them (IOH) does not support it";
    case 4: return "it is switched off in the driver's settings";
    case 5: return "it is not supported";
    default: return "the driver does not say why";
  }
}

std::string words_for_path(int ancestor) {
  switch (ancestor) {
    case 0: return "on one board";
    case 10: return "one switch";
    case 20: return "several switches";
    case 30: return "a host bridge";
    case 40: return "within a socket";
    case 50: return "between sockets";
    default: return "";
  }
}

}  // namespace

std::string_view name_of(Throttle reason) {
  switch (reason) {
    case Throttle::power_cap: return "power_cap";
    case Throttle::hardware_slowdown: return "hardware_slowdown";
    case Throttle::sync_boost: return "sync_boost";
    case Throttle::software_thermal: return "software_thermal";
    case Throttle::hardware_thermal: return "hardware_thermal";
    case Throttle::power_brake: return "power_brake";
  }
  throw base::Bug("a reason for low clocks has a name");
}

std::string_view describe(Throttle reason) {
  switch (reason) {
    case Throttle::power_cap: return "at its power limit";
    case Throttle::hardware_slowdown: return "slowed by its own protection (heat or power)";
    case Throttle::sync_boost: return "held to the clocks of another GPU";
    case Throttle::software_thermal: return "slowed by heat";
    case Throttle::hardware_thermal: return "slowed by too much heat";
    case Throttle::power_brake: return "slowed by the power supply (power brake)";
  }
  throw base::Bug("a reason for low clocks has words");
}

Nvml::Nvml(const char* library) : library_(std::make_unique<Library>(library)) {}
Nvml::~Nvml() = default;

bool Nvml::present() const { return library_->handle != nullptr; }
bool Nvml::started() const { return library_->running; }
std::string Nvml::problem() const {
  if (!present() || started()) return {};
  return library_->complete ? library_->error_text(library_->status) : "libnvidia-ml.so.1 lacks functions that are needed";
}

std::string Nvml::driver_version() const { return started() ? ask_text(library_->driver_version) : ""; }
std::optional<int> Nvml::cuda_version() const { return started() ? ask<int>(library_->cuda_version) : std::nullopt; }
int Nvml::count() const { return static_cast<int>(library_->devices.size()); }

GpuFacts Nvml::facts(int gpu) const {
  const Library& ml = *library_;
  const Library::Device device = ml.devices.at(static_cast<std::size_t>(gpu));
  GpuFacts facts{
      .index = ml.indices.at(static_cast<std::size_t>(gpu)), .name = ask_text(ml.name, device), .uuid = ask_text(ml.uuid, device)};
  if (const auto pci = ask<Library::Pci>(ml.pci, device)) facts.bus_id = pci->bus_id;
  if (const auto memory = ask<Library::Memory>(ml.memory, device)) facts.memory_bytes = memory->total;
  int major = 0, minor = 0;
  if (ml.capability != nullptr && ml.capability(device, &major, &minor) == 0) {
    facts.capability_major = major;
    facts.capability_minor = minor;
  }
  facts.sm_clock_max_mhz = ask_integer(ml.clock_max, device, 1);
  facts.memory_clock_max_mhz = ask_integer(ml.clock_max, device, 2);
  facts.pcie_generation_max = ask_integer(ml.pcie_generation_max, device);
  facts.pcie_width_max = ask_integer(ml.pcie_width_max, device);
  if (const auto mode = ask<int>(ml.compute_mode, device))
    facts.use = *mode == 2 ? GpuFacts::Use::nobody : *mode == 0 ? GpuFacts::Use::shared : GpuFacts::Use::one_process;
  unsigned mig_now = 0, mig_later = 0;
  if (ml.mig_mode != nullptr && ml.mig_mode(device, &mig_now, &mig_later) == 0) facts.mig = mig_now != 0;
  facts.uncorrected_errors = ask<Library::Large>(ml.ecc_errors, device, 1, 0);
  return facts;
}

std::optional<Nvml::Memory> Nvml::memory(int gpu) const {
  const auto memory = ask<Library::Memory>(library_->memory, library_->devices.at(static_cast<std::size_t>(gpu)));
  return memory ? std::optional(Memory{memory->total, memory->free, memory->used}) : std::nullopt;
}

std::vector<NvLink> Nvml::links(int gpu) const {
  const Library& ml = *library_;
  const Library::Device device = ml.devices.at(static_cast<std::size_t>(gpu));
  std::vector<NvLink> links;
  for (unsigned i = 0; i < most_links; ++i) {
    const auto state = ask_integer(ml.link_state, device, i);
    if (!state) continue;  // this GPU has fewer, or none
    NvLink link{.number = static_cast<int>(i), .active = *state != 0};
    link.version = ask_integer(ml.link_version, device, i);
    if (const auto kind = ask<int>(ml.link_remote_kind, device, i))
      link.remote = *kind == 0   ? NvLink::Remote::gpu
                    : *kind == 2 ? NvLink::Remote::nvswitch
                    : *kind == 1 ? NvLink::Remote::other
                                 : NvLink::Remote::unknown;
    if (const auto remote = link.active ? ask<Library::Pci>(ml.link_remote, device, i) : std::nullopt) link.remote_bus_id = remote->bus_id;
    links.push_back(std::move(link));
  }
  return links;
}

GpuReading Nvml::read(int gpu, Cost cost) const {
  const Library& ml = *library_;
  const Library::Device device = ml.devices.at(static_cast<std::size_t>(gpu));
  GpuReading reading;
  if (const auto held = memory(gpu)) {
    reading.memory_used_bytes = held->used_bytes;
    reading.memory_free_bytes = held->free_bytes;
  }
  if (const auto rates = ask<Library::Rates>(ml.utilization, device)) {
    reading.utilization_percent = static_cast<int>(rates->gpu);
    reading.memory_utilization_percent = static_cast<int>(rates->memory);
  }
  reading.power_w = scaled(ask<unsigned>(ml.power, device), 1e-3);
  reading.power_limit_w = scaled(ask<unsigned>(ml.power_limit, device), 1e-3);
  reading.temperature_c = ask_integer(ml.temperature, device, 0);
  reading.sm_clock_mhz = ask_integer(ml.clock, device, 1);
  reading.memory_clock_mhz = ask_integer(ml.clock, device, 2);
  if (const auto bits = ask<Library::Large>(ml.throttle, device)) reading.throttled = reasons_in(*bits);
  reading.pcie_generation = ask_integer(ml.pcie_generation, device);
  reading.pcie_width = ask_integer(ml.pcie_width, device);
  if (cost.pcie_traffic) {
    reading.pcie_sent_bytes_per_s = scaled(ask<unsigned>(ml.pcie_throughput, device, 0), 1024);
    reading.pcie_received_bytes_per_s = scaled(ask<unsigned>(ml.pcie_throughput, device, 1), 1024);
  }
  // In KiB of data, over all links: a driver that cannot add them up says so, and the numbers stay absent.
  constexpr unsigned data_sent = 138, data_received = 139, all_links = ~0U;
  std::array<Library::Field, 2> fields{};
  fields[0].id = data_sent;
  fields[1].id = data_received;
  for (Library::Field& field : fields) field.scope = all_links;
  if (ml.fields != nullptr && ml.fields(device, static_cast<int>(fields.size()), fields.data()) == 0) {
    if (fields[0].status == 0) reading.nvlink_sent_bytes = fields[0].value.large * 1024;
    if (fields[1].status == 0) reading.nvlink_received_bytes = fields[1].value.large * 1024;
  }
  return reading;
}

std::string describe(const GpuProcess& process) {
  std::ifstream stream(fmt::format("/proc/{}/comm", process.pid));
  std::string command;
  stream >> command;
  return fmt::format("pid {}{}{}", process.pid, command.empty() ? "" : " " + command,
                     process.memory_bytes ? ", " + base::human_bytes(*process.memory_bytes) : "");
}

std::vector<GpuProcess> Nvml::processes(int gpu) const {
  const Library& ml = *library_;
  const Library::Device device = ml.devices.at(static_cast<std::size_t>(gpu));
  const auto list = [&](auto function, auto example) {
    std::vector<decltype(example)> found(64);
    for (int tries = 0; tries < 4; ++tries) {
      auto count = static_cast<unsigned>(found.size());
      const int status = function(device, &count, found.data());
      if (status == not_enough_room) {
        found.resize(count + 16);  // others may start meanwhile
        continue;
      }
      found.resize(status == 0 ? count : 0);
      break;
    }
    std::vector<GpuProcess> processes;
    for (const auto& one : found) {
      const bool known = one.memory != ~0ULL;  // a container without rights is not told
      processes.push_back({static_cast<pid_t>(one.pid), known ? std::optional<std::uint64_t>(one.memory) : std::nullopt});
    }
    return processes;
  };
  if (ml.processes != nullptr) return list(ml.processes, Library::Process{});
  if (ml.old_processes != nullptr) return list(ml.old_processes, Library::OldProcess{});
  return {};
}

GpuPair Nvml::pair(int first, int second) const {
  const Library& ml = *library_;
  const Library::Device a = ml.devices.at(static_cast<std::size_t>(first)), b = ml.devices.at(static_cast<std::size_t>(second));
  GpuPair pair;
  const auto reads = ask<int>(ml.peer, a, b, 0), writes = ask<int>(ml.peer, a, b, 1);
  if (reads) pair.reads = *reads == 0;
  if (writes) pair.writes = *writes == 0;
  if (reads && *reads != 0)
    pair.why_not = words_for_peer_status(*reads);
  else if (writes && *writes != 0)
    pair.why_not = words_for_peer_status(*writes);
  if (const auto ancestor = ask<int>(ml.ancestor, a, b)) pair.path = words_for_path(*ancestor);
  const std::vector<NvLink> mine = links(first), theirs = links(second);
  const auto their_pci = ask<Library::Pci>(ml.pci, b);
  const std::string their_bus_id = their_pci ? their_pci->bus_id : "";
  std::set<std::string> switches;  // that the second is on
  for (const NvLink& link : theirs) {
    if (link.active && link.remote == NvLink::Remote::nvswitch) switches.insert(link.remote_bus_id);
  }
  pair.nvlinks = static_cast<int>(std::count_if(mine.begin(), mine.end(), [&](const NvLink& link) {
    if (!link.active || link.remote_bus_id.empty()) return false;
    return link.remote == NvLink::Remote::nvswitch ? switches.contains(link.remote_bus_id) : link.remote_bus_id == their_bus_id;
  }));
  return pair;
}

}  // namespace lockstep::launch
