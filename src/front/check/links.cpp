// Peer access, NVLink and PCIe between the GPUs of a machine.
#include "front/check/links.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/text.h"
#include "front/check/lists.h"

namespace lockstep::check {
namespace {

using launch::GpuFacts;
using launch::GpuPair;
using launch::Nvml;
using Json = nlohmann::ordered_json;

std::string short_name(const GpuPair& pair) {
  if (pair.nvlinks > 0) return fmt::format("NV{}", pair.nvlinks);
  if (pair.reads == true && pair.writes == true) return "P2P";
  return pair.reads ? "host" : "?";
}

// What connects this GPU with the others.
struct Speed {
  double bytes_per_second = 0;
  std::string by;
  bool nvlink = false;
};
Speed speed_of(const Nvml& nvml, int position) {
  int active = 0, version = 0;
  for (const launch::NvLink& link : nvml.links(position)) {
    if (!link.active) continue;
    ++active;
    version = link.version.value_or(version);
  }
  if (active > 0)
    return {active * nvlink_bytes_per_second(version), fmt::format("{} NVLink{} of version {}", active, active == 1 ? "" : "s", version),
            true};
  const GpuFacts facts = nvml.facts(position);
  const int width = nvml.read(position, {.pcie_traffic = false}).pcie_width.value_or(facts.pcie_width_max.value_or(0));
  const int generation = facts.pcie_generation_max.value_or(0);
  return {pcie_bytes_per_second(generation, width), fmt::format("PCIe {}.0 x{}", generation, width), false};
}

}  // namespace

double nvlink_bytes_per_second(int version) {
  switch (version) {
    case 1: return 20e9;
    case 2: return 25e9;
    case 3: return 25e9;
    case 4: return 25e9;
    case 5: return 50e9;
    default: return 0;
  }
}

double pcie_bytes_per_second(int generation, int width) {
  switch (generation) {
    case 1: return 0.25e9 * width;
    case 2: return 0.5e9 * width;
    case 3: return 0.985e9 * width;
    case 4: return 1.969e9 * width;
    case 5: return 3.938e9 * width;
    case 6: return 7.563e9 * width;
    default: return 0;
  }
}

std::vector<int> visible_positions(const Nvml& nvml, const launch::Machine& machine) {
  std::vector<int> positions;
  for (int i = 0; i < nvml.count(); ++i) {
    const int index = nvml.facts(i).index;
    if (std::any_of(machine.visible.begin(), machine.visible.end(), [&](const launch::VisibleGpu& one) { return one.gpu.index == index; }))
      positions.push_back(i);
  }
  return positions;
}

LinkMatrix look_at_links(const Nvml& nvml, std::span<const int> positions) {
  LinkMatrix matrix;
  for (const int from : positions) {
    matrix.gpus.push_back(nvml.facts(from).index);
    auto& row = matrix.pairs.emplace_back();
    for (const int to : positions) row.push_back(from == to ? GpuPair{} : nvml.pair(from, to));
    const Speed speed = speed_of(nvml, from);
    if (speed.bytes_per_second <= 0 || (matrix.bytes_per_second && *matrix.bytes_per_second <= speed.bytes_per_second)) continue;
    matrix.bytes_per_second = speed.bytes_per_second;
    matrix.by = speed.by;
    matrix.nvlink = speed.nvlink;
  }
  return matrix;
}

std::string to_text(const LinkMatrix& matrix) {
  std::string text = "      ";
  for (const int gpu : matrix.gpus) text += fmt::format(" {:>6}", fmt::format("GPU {}", gpu));
  for (std::size_t i = 0; i < matrix.gpus.size(); ++i) {
    text += fmt::format("\n{:<6}", fmt::format("GPU {}", matrix.gpus[i]));
    for (std::size_t j = 0; j < matrix.gpus.size(); ++j) text += fmt::format(" {:>6}", i == j ? "-" : short_name(matrix.pairs[i][j]));
  }
  return text;
}

Outcome check_links(Context& context) {
  const Nvml nvml;
  const std::vector<int> positions = visible_positions(nvml, context.machine);
  if (positions.empty()) return {{not_here("no GPU")}};
  if (positions.size() == 1) return {{not_here("there is one GPU: nobody to reach")}};
  const LinkMatrix matrix = look_at_links(nvml, positions);
  Outcome outcome;
  outcome.numbers = {{"gpus", matrix.gpus}, {"matrix", Json::array()}};
  if (matrix.bytes_per_second) outcome.numbers["link_bytes_per_second"] = *matrix.bytes_per_second;
  int without = 0;
  std::string why;
  for (std::size_t i = 0; i < positions.size(); ++i) {
    Json row = Json::array();
    for (std::size_t j = 0; j < positions.size(); ++j) {
      const GpuPair& pair = matrix.pairs[i][j];
      row.push_back(i == j ? "-" : short_name(pair));
      if (i >= j || !(pair.reads == false || pair.writes == false)) continue;
      ++without;
      why = fmt::format("GPU {} and GPU {}: {}", matrix.gpus[i], matrix.gpus[j], pair.why_not);
    }
    outcome.numbers["matrix"].push_back(std::move(row));
  }
  outcome.findings.push_back(
      good(fmt::format("by {}\n{}", matrix.by.empty() ? "a way that the driver does not tell" : matrix.by, to_text(matrix))));
  if (without > 0)
    outcome.findings.push_back(
        warning("LS-210", fmt::format("{} pair{} of GPUs have no peer access: {}", without, without == 1 ? "" : "s", why)));
  return outcome;
}

}  // namespace lockstep::check
