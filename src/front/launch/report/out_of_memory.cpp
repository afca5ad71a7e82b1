// Reads the control group's kill counters (both versions) and the kernel log.
#include "front/launch/report/out_of_memory.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <fstream>

#include "base/text.h"

namespace lockstep::launch {
namespace {

namespace fs = std::filesystem;

// Files with a kill counter for this process's control group, and for the root that a container sees as its own.
std::vector<fs::path> counter_files() {
  std::vector<fs::path> files = {"/sys/fs/cgroup/memory.events", "/sys/fs/cgroup/memory/memory.oom_control"};
  std::ifstream groups("/proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {
    const auto parts = base::split(line, ':');  // id:controllers:path
    if (parts.size() < 3 || parts[2] == "/") continue;
    const std::string path = parts[2].substr(1);
    if (parts[1].empty()) files.push_back(fs::path("/sys/fs/cgroup") / path / "memory.events");
    if (parts[1] == "memory") files.push_back(fs::path("/sys/fs/cgroup/memory") / path / "memory.oom_control");
  }
  return files;
}

}  // namespace

std::int64_t oom_kills(const fs::path& file) {
  std::ifstream lines(file);
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("oom_kill ")) return base::parse_integer(base::trim(line.substr(9))).value_or(-1);
  }
  return -1;
}

bool names_victim(std::string_view kernel_lines, pid_t pid) {
  // "Out of memory: Killed process 4711 (lockstep-worker) ...", "Memory cgroup out of memory: Killed process 4711 ..."
  return kernel_lines.find(fmt::format("Killed process {} ", pid)) != std::string_view::npos;
}

OutOfMemoryWatch::OutOfMemoryWatch() {
  for (const auto& file : counter_files()) {
    const std::int64_t before = oom_kills(file);
    if (before >= 0) counters_.push_back({file, before});
  }
  kernel_log_ = base::Descriptor(::open("/dev/kmsg", O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  if (kernel_log_.open()) ::lseek(kernel_log_.number(), 0, SEEK_END);
}

std::string OutOfMemoryWatch::evidence_against(pid_t pid) {
  if (kernel_log_.open()) {
    char record[8192];  // one record a read
    for (int i = 0; i < 100'000; ++i) {
      const ssize_t got = ::read(kernel_log_.number(), record, sizeof record);
      if (got < 0 && errno == EPIPE) continue;  // overwritten before it was read
      if (got <= 0) break;
      kernel_lines_.append(record, static_cast<std::size_t>(got));
    }
    if (names_victim(kernel_lines_, pid)) return "the kernel log";
  }
  for (const auto& counter : counters_) {
    if (oom_kills(counter.file) > counter.before) return counter.file.string();
  }
  return {};
}

}  // namespace lockstep::launch
