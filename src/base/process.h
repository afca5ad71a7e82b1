// What the kernel says of processes.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::base {

// A file that /proc has of a process, "cmdline" for one. Empty where there is no such process, and where it ends while it is read: standard
// streams would throw then, at whoever looks after it.
std::string process_file(pid_t pid, std::string_view name);
// The words of /proc/PID/stat after the program's name: the first is the state ("R", "S", "T", "D", "Z"), field 3 of proc(5).
// Empty where there is no such process. `thread`: that one of its threads instead of the first.
std::vector<std::string> process_stat(pid_t pid, pid_t thread = 0);
std::vector<pid_t> threads_of(pid_t pid);

// A thread in uninterruptible sleep: state D.
struct DeepSleep {
  pid_t thread;
  std::uint64_t switches;  // how often it has left a core so far: where this stays the same, it has slept all the time
};
std::vector<DeepSleep> deep_sleeps(pid_t pid);

// Pids mean the same only to processes that have the same one of these.
std::uint64_t pid_namespace();

}  // namespace lockstep::base
