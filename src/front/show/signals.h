// Signals that steer a job from a terminal or a scheduler: Ctrl-C, SIGTERM, SIGHUP.
#pragma once

#include <csignal>
#include <functional>
#include <thread>

#include "base/file/descriptor.h"
#include "base/signal_flag.h"

namespace lockstep::show {

// While it lives they end nothing: a thread takes each and passes it on. Threads made before must have blocked them. Output that nobody
// reads any more ends nothing either.
class Signals {
 public:
  explicit Signals(std::function<void(int)> on_signal);
  ~Signals();
  Signals(const Signals&) = delete;
  Signals& operator=(const Signals&) = delete;

 private:
  void take() const;

  std::function<void(int)> on_signal_;
  sigset_t before_{}, ours_{};
  base::IgnoredSignal pipe_{SIGPIPE};
  base::Descriptor signals_, closing_;
  std::thread thread_;
};

}  // namespace lockstep::show
