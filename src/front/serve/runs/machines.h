// GPUs and processes of a run's machines, as their launchers last wrote them (docs/monitoring.md).
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <string>

#include <nlohmann/json.hpp>

#include "base/mutex.h"
#include "journal/tail.h"

namespace lockstep::serve {

// Any thread. Files are read on where they were left: the line that says what a machine has stands at the beginning of hours of others.
class Machines {
 public:
  // [{"machine": its line, "last": the last reading, "straggler": the last that was named}], null where there is none.
  nlohmann::ordered_json of(const std::filesystem::path& monitor);

 private:
  static constexpr std::size_t kept = 64;
  struct File {
    std::unique_ptr<journal::Tail> tail;
    nlohmann::ordered_json machine, last, straggler;
    std::uint64_t used = 0;
  };
  static void read_on(File& file);

  base::Mutex mutex_;
  std::map<std::string, File> files_ LOCKSTEP_GUARDED_BY(mutex_);
  std::uint64_t uses_ LOCKSTEP_GUARDED_BY(mutex_) = 0;
};

}  // namespace lockstep::serve
