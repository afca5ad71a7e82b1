// Runs that wait for their turn: one begins when no other trains and its GPUs are free.
#pragma once

#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "base/mutex.h"
#include "front/serve/folders.h"
#include "front/serve/children/starts.h"

namespace lockstep::serve {

// Any thread. OUTPUT/.ui/queue.json holds what waits, so that a page that is started later goes on with it.
class Queue {
 public:
  Queue(const Folders& folders, Starts& starts) : folders_(folders), starts_(starts) {}

  void add(const std::string& name, const std::vector<std::string>& arguments);
  bool remove(const std::string& name);    // false where it does not wait
  std::vector<std::string> names() const;  // the next one first
  // Starts the next one where it is its turn. `others_train`: some run here does.
  void advance(bool others_train);

 private:
  nlohmann::ordered_json read() const LOCKSTEP_REQUIRES(mutex_);
  void write(const nlohmann::ordered_json& waiting) const LOCKSTEP_REQUIRES(mutex_);

  const Folders& folders_;
  Starts& starts_;
  mutable base::Mutex mutex_;
};

}  // namespace lockstep::serve
