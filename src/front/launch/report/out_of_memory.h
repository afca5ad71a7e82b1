// Evidence that the kernel killed a process for want of memory.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "base/file/descriptor.h"

namespace lockstep::launch {

// Remembers the counters and the kernel log's end when it is made; tells afterwards what was added.
class OutOfMemoryWatch {
 public:
  OutOfMemoryWatch();
  OutOfMemoryWatch(const OutOfMemoryWatch&) = delete;
  OutOfMemoryWatch& operator=(const OutOfMemoryWatch&) = delete;
  // Where the evidence is: "the control group's memory.events", "the kernel log"; empty if there is none.
  std::string evidence_against(pid_t pid);

 private:
  struct Counter {
    std::filesystem::path file;
    std::int64_t before;
  };
  std::vector<Counter> counters_;
  base::Descriptor kernel_log_;
  std::string kernel_lines_;
};

// The value after "oom_kill " in memory.events or memory.oom_control; -1 if there is none.
std::int64_t oom_kills(const std::filesystem::path& file);
// Whether the kernel's lines say that this process was the victim.
bool names_victim(std::string_view kernel_lines, pid_t pid);

}  // namespace lockstep::launch
