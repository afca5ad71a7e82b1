// Samples of an epoch, counted beside the form: whoever types is not kept waiting for data to be read.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <thread>

#include "base/mutex.h"
#include "config/run_config.h"

namespace lockstep::serve {

// Any thread. What costs no reading is counted at once; small data is tokenized by a thread of its own, into the cache that a run would
// use; large data is counted when its run starts.
class Counting {
 public:
  Counting();
  ~Counting();
  Counting(const Counting&) = delete;
  Counting& operator=(const Counting&) = delete;

  struct Count {
    std::optional<std::int64_t> samples = {};
    bool underway = false;     // ask again
    std::string mistake = {};  // what is wrong with the data
  };
  // UserError where the data is not there.
  Count of(const config::RunConfig& config);

 private:
  struct Wanted {
    std::string key;
    config::RunConfig config;
  };
  void work();

  base::Mutex mutex_;
  base::Condition changed_;
  bool closing_ LOCKSTEP_GUARDED_BY(mutex_) = false;
  std::optional<Wanted> wanted_ LOCKSTEP_GUARDED_BY(mutex_);  // only the last one: the others have been typed over
  std::string working_ LOCKSTEP_GUARDED_BY(mutex_);           // key of what is being counted
  std::map<std::string, Count> counted_ LOCKSTEP_GUARDED_BY(mutex_);
  std::thread thread_;
};

}  // namespace lockstep::serve
