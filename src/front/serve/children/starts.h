// Starts `lockstep train` as a process of its own, so that a run outlives the page that began it.
#pragma once

#include <sys/types.h>

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "front/serve/folders.h"

namespace lockstep::serve {

// Any thread. A start is remembered in OUTPUT/.ui/NAME.start (its process) and NAME.log (what it prints), so that a page that is started
// later knows of it too.
class Starts {
 public:
  explicit Starts(const Folders& folders);

  // `arguments`: behind `lockstep`. No shell sees them. UserError where the process cannot be started, or has no room on the disk.
  void start(const std::string& name, const std::vector<std::string>& arguments);

  struct Start {
    bool lives = false;
    pid_t pid = 0;
    std::string printed;  // its last lines
  };
  // The last start of this name from a page; nothing where there was none.
  std::optional<Start> of(const std::string& name);
  std::vector<std::string> names() const;
  // Asks the process to end, as Ctrl-C does; false where it does not live.
  bool stop(const std::string& name);
  void forget(const std::string& name);
  // Collects processes that have ended.
  void reap();

 private:
  void expect_room() const;
  std::filesystem::path record(const std::string& name) const;
  std::filesystem::path printed(const std::string& name) const;

  const Folders& folders_;
  base::Mutex mutex_;
  std::vector<pid_t> children_ LOCKSTEP_GUARDED_BY(mutex_);
};

}  // namespace lockstep::serve
