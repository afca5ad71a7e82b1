// One child process: started so that it cannot outlive us, ended with everything it started.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/file/descriptor.h"
#include "front/launch/environment.h"

namespace lockstep::launch {

// How a process ended.
struct End {
  int exit_code = 0;  // meaningful if signal is 0
  int signal = 0;
  bool clean() const { return exit_code == 0 && signal == 0; }
};
std::string in_words(const End& end);  // "exited with code 3", "killed by signal 11 (SIGSEGV, segmentation fault)"

struct Command {
  std::filesystem::path program;
  std::vector<std::string> arguments;  // without the program's name
  Environment environment;             // all of it
  std::filesystem::path log = {};      // stdout and stderr are appended to it, and stdin is empty; no log: they stay ours
  int input = -1, output = -1;         // what becomes its stdin and stdout instead; -1: as `log` says
  int keeps = -1;                      // an open file that it shall have under the same number
};

// Not thread-safe, and to be started from the thread that lives as long as the program: the kernel ends the child with that thread.
class Child {
 public:
  // UserError if the program cannot be run.
  static Child start(const Command& command);
  Child(Child&& other) noexcept;
  Child& operator=(Child&&) = delete;
  ~Child();  // kills what still runs

  pid_t pid() const { return pid_; }
  // Readable once it has ended, for poll(); -1 where the kernel has none for processes.
  int end_descriptor() const { return end_descriptor_.number(); }
  bool running() const { return !end_.has_value(); }
  const std::optional<End>& end() const { return end_; }  // as last seen by poll()
  // Looks whether it has ended. Once it has, what remains of its process group is killed.
  const std::optional<End>& poll();
  // It has begun to die, but cannot be waited for yet: the kernel still frees its memory, which takes seconds where a GPU holds much.
  bool dying() const;
  void send(int signal);  // to the process itself
  void kill_now();        // SIGKILL to its process group
  // True once it has ended; waits so long at most.
  bool wait(double seconds);

 private:
  explicit Child(pid_t pid);
  pid_t pid_;
  base::Descriptor end_descriptor_;
  std::optional<End> end_;
};

}  // namespace lockstep::launch
