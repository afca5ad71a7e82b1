// An answer that stays open: server-sent events, pushed by any thread and sent by the server's loop.
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include "base/mutex.h"

namespace lockstep::http {

// Wakes the loop of a server from any thread; outlives it.
class Waker {
 public:
  Waker();
  ~Waker();
  Waker(const Waker&) = delete;
  Waker& operator=(const Waker&) = delete;
  void wake() const;
  void clear() const;
  int descriptor() const { return descriptor_; }

 private:
  int descriptor_;
};

// Any thread. A listener that lags behind by more than `most_waiting` is let go: browsers come back by themselves and get what is there.
class Stream {
 public:
  static constexpr std::size_t most_waiting = 8 << 20;

  // One event; `data` must hold no line ends, as JSON does not.
  void push(std::string_view event, std::string_view data);
  void comment();  // keeps connections alive that something on the way would close
  void end();      // after what was pushed
  bool open() const { return open_; }

  // The loop's side.
  void attach(std::shared_ptr<const Waker> waker);
  struct Taken {
    std::string bytes;
    bool ends = false;
  };
  Taken take();
  void close() { open_ = false; }  // the listener is gone

 private:
  void append(std::string_view text);

  std::atomic<bool> open_ = true;
  base::Mutex mutex_;
  std::string waiting_ LOCKSTEP_GUARDED_BY(mutex_);
  bool ends_ LOCKSTEP_GUARDED_BY(mutex_) = false;
  std::shared_ptr<const Waker> waker_ LOCKSTEP_GUARDED_BY(mutex_);
};

}  // namespace lockstep::http
