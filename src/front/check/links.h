// How GPUs of this machine reach each other: a matrix, and what a collective over them could give at best.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "front/check/check.h"

namespace lockstep::check {

struct LinkMatrix {
  std::vector<int> gpus;                            // as nvidia-smi counts
  std::vector<std::vector<launch::GpuPair>> pairs;  // [from][to]; the diagonal is empty
  std::optional<double> bytes_per_second = {};      // of the slowest GPU, in one direction, by what connects it: links or lanes
  std::string by = {};                              // "18 NVLinks of version 4", "PCIe 5.0 x16"
  bool nvlink = false;
};
// Where NVML has the GPUs that a run could use. MIG slices are not among them: they have no links.
std::vector<int> visible_positions(const launch::Nvml& nvml, const launch::Machine& machine);
LinkMatrix look_at_links(const launch::Nvml& nvml, std::span<const int> positions);
std::string to_text(const LinkMatrix& matrix);  // a table, a line a GPU: NV18 is 18 NVLinks, P2P peer access by PCIe, SYS through the host

// Bytes a second that a link of this version carries in one direction; 0: not known.
double nvlink_bytes_per_second(int version);
double pcie_bytes_per_second(int generation, int width);

nlohmann::ordered_json describe_gpu(const launch::GpuFacts& facts, const launch::GpuReading& now,
                                    const std::vector<launch::GpuProcess>& processes);

}  // namespace lockstep::check
