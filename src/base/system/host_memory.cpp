// Reads /proc and the control group.
#include "base/system/host_memory.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "base/text.h"

namespace lockstep::base {
namespace {

namespace fs = std::filesystem;

std::optional<std::uint64_t> number_in(const fs::path& file) {
  std::ifstream stream(file);
  std::string word;
  stream >> word;
  const auto value = parse_integer(word);
  return value && *value >= 0 ? std::optional(static_cast<std::uint64_t>(*value)) : std::nullopt;
}

// A file of this process's control group, of either version, or of the root that a container sees as its own.
std::optional<std::uint64_t> of_control_group(const char* second, const char* first) {
  std::vector<fs::path> files;
  std::ifstream groups("/proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {
    const auto parts = split(line, ':');  // id:controllers:path
    if (parts.size() < 3) continue;
    const std::string path = parts[2].substr(std::min<std::size_t>(1, parts[2].size()));
    if (parts[1].empty()) files.push_back(fs::path("/sys/fs/cgroup") / path / second);
    if (parts[1] == "memory") files.push_back(fs::path("/sys/fs/cgroup/memory") / path / first);
  }
  files.push_back(fs::path("/sys/fs/cgroup") / second);
  files.push_back(fs::path("/sys/fs/cgroup/memory") / first);
  for (const fs::path& file : files) {
    if (const auto number = number_in(file)) return number;
  }
  return std::nullopt;
}

}  // namespace

std::uint64_t HostMemory::usable() const {
  if (!container_limit_bytes) return available_bytes;
  const std::uint64_t used = std::min(container_used_bytes.value_or(0), *container_limit_bytes);
  return std::min(available_bytes, *container_limit_bytes - used);
}

HostMemory look_at_host_memory() {
  HostMemory memory;
  std::ifstream file("/proc/meminfo");
  for (std::string line; std::getline(file, line);) {
    const auto value = [&](std::string_view name) -> std::optional<std::uint64_t> {
      if (!line.starts_with(name)) return std::nullopt;
      const std::string number = trim(line.substr(name.size()));
      return static_cast<std::uint64_t>(parse_integer(number.substr(0, number.find(' '))).value_or(0)) * 1024;
    };
    if (const auto total = value("MemTotal:")) memory.total_bytes = *total;
    if (const auto available = value("MemAvailable:")) memory.available_bytes = *available;
  }
  const auto limit = of_control_group("memory.max", "memory.limit_in_bytes");
  if (limit && *limit < memory.total_bytes) {  // the first version writes a huge number for none
    memory.container_limit_bytes = limit;
    memory.container_used_bytes = of_control_group("memory.current", "memory.usage_in_bytes");
  }
  return memory;
}

}  // namespace lockstep::base
