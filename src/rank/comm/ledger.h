// What a world's operations come to, by kind, and who hears that someone waits for one.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>

#include "base/mutex.h"

namespace lockstep::comm {

// Any thread, but for on_wait.
class Ledger {
 public:
  struct Entry {
    std::int64_t calls = 0;
    std::uint64_t bytes = 0;        // of their tensors
    std::uint64_t timed_bytes = 0;  // of those whose time is known
    double seconds = 0;             // of those, from begin to end
  };
  void issued(std::string_view kind, std::uint64_t bytes) {
    const base::Lock lock(mutex_);
    Entry& entry = at(kind);
    entry.calls += 1;
    entry.bytes += bytes;
  }
  void took(std::string_view kind, std::uint64_t bytes, double seconds) {
    const base::Lock lock(mutex_);
    Entry& entry = at(kind);
    entry.timed_bytes += bytes;
    entry.seconds += seconds;
  }
  std::map<std::string, Entry, std::less<>> entries() const {
    const base::Lock lock(mutex_);
    return entries_;
  }

  // Called by the thread that waits, before (true) and after (false): set before the first operation, called by one thread.
  std::function<void(bool begins, std::string_view kind)> on_wait;

 private:
  Entry& at(std::string_view kind) LOCKSTEP_REQUIRES(mutex_) {
    const auto found = entries_.find(kind);
    return found != entries_.end() ? found->second : entries_[std::string(kind)];
  }
  mutable base::Mutex mutex_;
  std::map<std::string, Entry, std::less<>> entries_ LOCKSTEP_GUARDED_BY(mutex_);
};

}  // namespace lockstep::comm
