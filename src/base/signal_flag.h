// Signals as flags: a handler may do no more than raise one, and whoever cares looks when it suits him.
#pragma once

#include <csignal>

namespace lockstep::base {

enum class Calls { go_on, are_interrupted };  // a read that waits when the signal comes

// While it lives, the signal raises this flag instead of doing what it does; then what was before comes back. One at a time for a signal.
class SignalFlag {
 public:
  SignalFlag(int signal, Calls calls);
  ~SignalFlag();
  SignalFlag(const SignalFlag&) = delete;
  SignalFlag& operator=(const SignalFlag&) = delete;

  bool raised() const;
  bool take();  // and lowers it

 private:
  int signal_;
  struct sigaction before_ {};
};

// While it lives, the signal does nothing.
class IgnoredSignal {
 public:
  explicit IgnoredSignal(int signal);
  ~IgnoredSignal();
  IgnoredSignal(const IgnoredSignal&) = delete;
  IgnoredSignal& operator=(const IgnoredSignal&) = delete;

 private:
  int signal_;
  struct sigaction before_ {};
};

}  // namespace lockstep::base
