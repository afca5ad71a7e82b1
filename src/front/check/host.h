// What the kernel says of this machine, and what it means for ranks. Facts and judgment are apart: tests judge made-up machines.
#pragma once

#include <cstdint>
#include <ctime>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/system/host_memory.h"
#include "front/check/check.h"

namespace lockstep::check {

inline constexpr std::uint64_t kib = 1024, mib = 1024 * kib, gib = 1024 * mib;

struct Disk {
  std::string what;  // "runs (--output)"
  std::filesystem::path path;
  std::uint64_t free_bytes = 0, total_bytes = 0;
  std::string problem = {};  // why nothing can be written there
};
Disk look_at_disk(std::string what, const std::filesystem::path& path);

struct Limits {
  std::optional<std::uint64_t> files, processes, locked_bytes;  // nothing: as many as one likes
};
Limits look_at_limits();

struct Clock {
  std::time_t now = 0;
  std::optional<bool> synchronized = {};
};
Clock look_at_clock();

Finding judge(const Disk& disk, std::uint64_t needed_bytes, std::uint64_t wanted_bytes);
Finding judge_shared_memory(const Disk& shared, int ranks, bool on_gpus);
std::vector<Finding> judge(const Limits& limits, int ranks, int machines);
Finding judge(const base::HostMemory& memory, int ranks);
Finding judge(const Clock& clock, int machines);

}  // namespace lockstep::check
