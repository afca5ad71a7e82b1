// Checkpoints become model folders: `lockstep export`, and for adapters `lockstep merge`, one after another.
#pragma once

#include <cstdint>
#include <deque>
#include <filesystem>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "base/mutex.h"
#include "front/serve/folders.h"

namespace lockstep::serve {

// Any thread. What is made lies in the run folder, RUN/exports/step-N; what was made before this program began is known by that.
class Exports {
 public:
  explicit Exports(const Folders& folders);
  ~Exports();  // ends what is at work; half a folder is never left under its name
  Exports(const Exports&) = delete;
  Exports& operator=(const Exports&) = delete;

  // `checkpoint`: its folder. `merge`: fold the run's adapters into their model. Where it will lie; UserError where that is there or
  // asked for already, or where there is nothing to merge.
  std::filesystem::path begin(const std::string& run, const std::filesystem::path& checkpoint, bool merge);
  // [{"name", "path", "state": "waiting" | "working" | "done" | "failed", "done", "total", "text", "bytes", "command"}]
  nlohmann::ordered_json of(const std::string& run) const;
  bool works_for(const std::string& run) const;

 private:
  struct Task {
    std::string run, name;
    std::filesystem::path folder;
    std::vector<std::vector<std::string>> commands;  // behind `lockstep`, in turn
    std::string state = "waiting", text = {};        // what it said at its end
    std::uint64_t done = 0, total = 0;
  };
  void work();
  void run_commands(const Task& task, std::string& said);
  void update(const Task& task, std::uint64_t done, std::uint64_t total);
  bool is_closing() const;

  static constexpr std::size_t most_waiting = 16;
  const Folders& folders_;
  mutable base::Mutex mutex_;
  base::Condition changed_;
  bool closing_ LOCKSTEP_GUARDED_BY(mutex_) = false;
  std::deque<Task> tasks_ LOCKSTEP_GUARDED_BY(mutex_);  // the first one that waits is next; those that failed stay, to be read
  std::thread thread_;
};

}  // namespace lockstep::serve
