// Runs that wait for their turn: one begins when no other trains and its GPUs are free.
#pragma once

#include <set>
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
  // Starts the next one where it is its turn. `others_train`: some run here does. One that cannot be started waits on.
  void advance(bool others_train);
  std::string trouble() const;  // why the next one could not be started, where it could not

 private:
  nlohmann::ordered_json read() const LOCKSTEP_REQUIRES(mutex_);
  void write(const nlohmann::ordered_json& waiting) LOCKSTEP_REQUIRES(mutex_);
  void begin(const std::string& name);

  const Folders& folders_;
  Starts& starts_;
  mutable base::Mutex mutex_;
  std::set<std::string> begun_ LOCKSTEP_GUARDED_BY(mutex_);  // that a full disk has kept in the file
  std::string trouble_ LOCKSTEP_GUARDED_BY(mutex_);
};

}  // namespace lockstep::serve
