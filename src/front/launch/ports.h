// The port that ranks meet on: one that is free, and whose it is if the asked one is not.
#pragma once

#include <optional>
#include <string>
#include <utility>

#include "base/file_lock.h"

namespace lockstep::launch {

constexpr int first_port = 29500;

bool port_is_free(int port);

// "pid 4711 (python3 train.py)", or as much of it as may be read; empty if nobody listens there.
std::string who_listens(int port);

// A port held for this job: other jobs of this user on the machine pass it over, though rank 0 listens on it only later. What other users
// hold is seen when they listen.
class PortLease {
 public:
  // Nothing if another job holds it or someone listens there.
  static std::optional<PortLease> take(int port);
  int port() const { return port_; }

 private:
  PortLease(int port, std::optional<base::FileLock> lock) : port_(port), lock_(std::move(lock)) {}
  int port_;
  std::optional<base::FileLock> lock_;
};

// asked > 0: that port or a UserError that names its holder. 0: 29500 or the next free one; `note` says so when it is another.
PortLease choose_port(int asked, std::string& note);

}  // namespace lockstep::launch
