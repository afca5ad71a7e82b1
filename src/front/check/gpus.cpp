// Driver and GPUs, as the management library and the bus see them.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <set>

#include "base/text.h"
#include "front/check/links.h"
#include "front/check/lists.h"

namespace lockstep::check {
namespace {

namespace fs = std::filesystem;
using launch::GpuFacts;
using launch::GpuReading;
using launch::Nvml;
using Json = nlohmann::ordered_json;

constexpr int cuda_needed = 13000;                            // LibTorch here is built for CUDA 13.0
constexpr int capability_needed = LOCKSTEP_LEAST_CAPABILITY;  // what kernels are compiled for, from src/CMakeLists.txt

std::string first_word(const fs::path& file) {
  std::ifstream stream(file);
  std::string word;
  stream >> word;
  return word;
}

// Graphics cards and accelerators of a vendor on the PCI bus, seen or not by a driver.
int cards_of_vendor(std::string_view vendor) {
  int cards = 0;
  std::error_code error;
  for (const auto& device : fs::directory_iterator("/sys/bus/pci/devices", error)) {
    const std::string kind = first_word(device.path() / "class");
    if (first_word(device.path() / "vendor") == vendor && (kind.starts_with("0x03") || kind.starts_with("0x12"))) ++cards;
  }
  return cards;
}

std::string version_text(int cuda) { return fmt::format("{}.{}", cuda / 1000, cuda % 1000 / 10); }

Finding no_driver(const Context& context) {
  if (const int cards = cards_of_vendor("0x10de"); cards > 0 && context.machine.installed.empty())
    return failed("LS-201", fmt::format("{} NVIDIA card{} on the bus, and no driver that answers", cards, cards == 1 ? "" : "s"));
  if (!context.machine.installed.empty())
    return warning("LS-201", "the kernel driver shows GPUs, but libnvidia-ml.so.1 is missing: their state cannot be read",
                   "start the container with the utility capability (NVIDIA_DRIVER_CAPABILITIES=compute,utility)");
  if (cards_of_vendor("0x1002") > 0) return warning("LS-214", "there is an AMD GPU");
  return not_here("no NVIDIA GPU: ranks train on the CPU, which is for small models and for trying things out");
}

// Whether a run could use it, or a slice of it: slices of MIG (index -1) do not tell whose they are.
bool is_visible(const Context& context, const GpuFacts& facts) {
  return std::any_of(context.machine.visible.begin(), context.machine.visible.end(),
                     [&](const launch::VisibleGpu& one) { return one.gpu.index == facts.index || one.gpu.index < 0; });
}

std::string pcie_words(const GpuFacts& facts, const GpuReading& now) {
  if (!facts.pcie_generation_max || !facts.pcie_width_max) return "";
  return fmt::format(", PCIe {}.0 x{}", *facts.pcie_generation_max, now.pcie_width.value_or(*facts.pcie_width_max));
}

void judge_use(const GpuFacts& facts, const std::vector<launch::GpuProcess>& processes, const std::string& name, const GpuReading& now,
               std::vector<Finding>& findings) {
  if (facts.use == GpuFacts::Use::nobody)
    findings.push_back(
        failed("LS-206", fmt::format("{} may be used by nobody (compute mode prohibited)", name), "nvidia-smi -c 0 allows it again"));
  std::vector<std::string> others;
  for (const launch::GpuProcess& process : processes) others.push_back(describe(process));
  // A display's, and what the driver keeps for itself, which grows with the card.
  const std::uint64_t nobodys = std::max(std::uint64_t{1} << 30, facts.memory_bytes.value_or(0) / 50);
  if (!others.empty())
    findings.push_back(warning("LS-206", fmt::format("{} is used by {}", name, base::join(others, "; "))));
  else if (now.memory_used_bytes.value_or(0) > nobodys)
    findings.push_back(warning("LS-206", fmt::format("{}: {} are taken by processes that cannot be seen from here", name,
                                                     base::human_bytes(*now.memory_used_bytes))));
}

void judge_state(const GpuFacts& facts, const GpuReading& now, const std::string& name, std::vector<Finding>& findings) {
  if (facts.capability_major && *facts.capability_major * 10 + facts.capability_minor.value_or(0) < capability_needed)
    findings.push_back(failed("LS-212", fmt::format("{} has compute capability {}.{}; {}.{} is needed", name, *facts.capability_major,
                                                    facts.capability_minor.value_or(0), capability_needed / 10, capability_needed % 10)));
  if (facts.uncorrected_errors.value_or(0) > 0)
    findings.push_back(
        failed("LS-211", fmt::format("{}: {} errors of its memory could not be corrected", name, *facts.uncorrected_errors)));
  std::vector<std::string> reasons;
  for (const launch::Throttle reason : now.throttled.value_or(std::vector<launch::Throttle>{})) reasons.emplace_back(describe(reason));
  if (!reasons.empty())
    findings.push_back(warning("LS-207", fmt::format("{} is {}{}", name, base::join(reasons, ", "),
                                                     now.temperature_c ? fmt::format(" at {} C", *now.temperature_c) : "")));
  if (now.pcie_width && facts.pcie_width_max && *now.pcie_width < *facts.pcie_width_max)
    findings.push_back(warning("LS-208", fmt::format("{} has {} of {} PCIe lanes", name, *now.pcie_width, *facts.pcie_width_max)));
}

template <typename T>
void put(Json& json, const char* name, const std::optional<T>& value) {
  if (value) json[name] = *value;
}

}  // namespace

Json describe_gpu(const GpuFacts& facts, const GpuReading& now, const std::vector<launch::GpuProcess>& processes) {
  Json json = {{"index", facts.index}, {"name", facts.name}, {"uuid", facts.uuid}, {"bus_id", facts.bus_id}};
  put(json, "memory_bytes", facts.memory_bytes);
  put(json, "memory_used_bytes", now.memory_used_bytes);
  if (facts.capability_major)
    json["compute_capability"] = fmt::format("{}.{}", *facts.capability_major, facts.capability_minor.value_or(0));
  put(json, "utilization_percent", now.utilization_percent);
  put(json, "temperature_c", now.temperature_c);
  put(json, "power_w", now.power_w);
  put(json, "power_limit_w", now.power_limit_w);
  put(json, "sm_clock_mhz", now.sm_clock_mhz);
  put(json, "sm_clock_max_mhz", facts.sm_clock_max_mhz);
  put(json, "memory_clock_mhz", now.memory_clock_mhz);
  put(json, "memory_clock_max_mhz", facts.memory_clock_max_mhz);
  put(json, "pcie_generation", now.pcie_generation);
  put(json, "pcie_generation_max", facts.pcie_generation_max);
  put(json, "pcie_width", now.pcie_width);
  put(json, "pcie_width_max", facts.pcie_width_max);
  if (now.throttled) {
    json["throttled"] = Json::array();
    for (const launch::Throttle reason : *now.throttled) json["throttled"].push_back(name_of(reason));
  }
  json["processes"] = Json::array();
  for (const launch::GpuProcess& process : processes) json["processes"].push_back(process.pid);
  return json;
}

Outcome check_driver(Context& context) {
  const Nvml nvml;
  if (!nvml.present()) return {{no_driver(context)}};
  if (!nvml.started()) {
    const bool mismatch = nvml.problem().find("mismatch") != std::string::npos;
    const bool not_loaded = nvml.problem().find("Not Loaded") != std::string::npos;
    return {{failed(mismatch     ? "LS-203"
                    : not_loaded ? "LS-201"
                                 : "LS-204",
                    fmt::format("the driver does not answer: {}", nvml.problem()))}};
  }
  const auto cuda = nvml.cuda_version();
  const std::string words = fmt::format("NVIDIA driver {}{}", nvml.driver_version().empty() ? "of unknown version" : nvml.driver_version(),
                                        cuda ? ", CUDA up to " + version_text(*cuda) : "");
  Json numbers = {{"driver", nvml.driver_version()}};
  put(numbers, "cuda", cuda);
  if (cuda && *cuda < cuda_needed) return {{failed("LS-202", fmt::format("{}; {} is needed", words, version_text(cuda_needed)))}, numbers};
  return {{good(words)}, numbers};
}

Outcome check_gpus(Context& context) {
  const Nvml nvml;
  if (context.machine.installed.empty())
    return {{not_here(nvml.count() > 0 ? "not looked at: ranks on the CPU were asked for" : "no GPU")}};
  Outcome outcome;
  outcome.numbers = Json::array();
  for (int i = 0; i < nvml.count(); ++i) {
    const GpuFacts facts = nvml.facts(i);
    if (!is_visible(context, facts)) continue;
    const GpuReading now = nvml.read(i, {.pcie_traffic = false});
    const auto processes = nvml.processes(i);
    const std::string name = fmt::format("GPU {}", facts.index);
    outcome.findings.push_back(
        good(fmt::format("{}: {}, {}{}{}, {}", name, facts.name, base::human_bytes(facts.memory_bytes.value_or(0)), pcie_words(facts, now),
                         now.temperature_c ? fmt::format(", {} C", *now.temperature_c) : "", facts.uuid)));
    judge_use(facts, processes, name, now, outcome.findings);
    judge_state(facts, now, name, outcome.findings);
    outcome.numbers.push_back(describe_gpu(facts, now, processes));
  }
  const std::size_t installed = context.machine.installed.size(), visible = context.machine.visible.size();
  if (visible < installed)
    outcome.findings.push_back(warning("LS-205", fmt::format("{} of {} GPUs can be seen: CUDA_VISIBLE_DEVICES={}", visible, installed,
                                                             launch::lookup(context.environment, "CUDA_VISIBLE_DEVICES").value_or(""))));
  if (outcome.findings.empty()) outcome.findings.push_back(good(launch::list_gpus(context.machine.visible)));
  return outcome;
}

Outcome check_kinds(Context& context) {
  std::set<std::string> kinds;
  for (const launch::VisibleGpu& one : context.machine.visible)
    kinds.insert(fmt::format("{}, {}", one.gpu.name, base::human_bytes(one.gpu.memory_bytes)));
  if (kinds.empty()) return {{not_here("no GPU")}};
  if (context.machine.visible.size() == 1) return {{not_here("there is one GPU: nothing to compare")}};
  if (kinds.size() == 1) return {{good(fmt::format("all {} are {}", context.machine.visible.size(), *kinds.begin()))}};
  return {{warning("LS-209", fmt::format("there are {}", fmt::join(kinds, " and ")))}};
}

}  // namespace lockstep::check
