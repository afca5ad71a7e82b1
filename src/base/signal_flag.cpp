// A handler is told no more than the signal's number, so that is where it finds the flag.
#include "base/signal_flag.h"

#include <array>
#include <atomic>

#include "base/error.h"

namespace lockstep::base {
namespace {

enum class Flag : char { of_nobody, down, up };

std::atomic<Flag>& flag_of(int signal) {
  static std::array<std::atomic<Flag>, NSIG> flags{};
  return flags.at(static_cast<std::size_t>(signal));
}

// Only a flag that is down: one that has lost its owner meanwhile stays nobody's.
void raise_flag(int signal) {
  Flag down = Flag::down;
  flag_of(signal).compare_exchange_strong(down, Flag::up);
}

}  // namespace

SignalFlag::SignalFlag(int signal, Calls calls) : signal_(signal) {
  check(flag_of(signal).exchange(Flag::down) == Flag::of_nobody, "a signal has one flag at a time");
  struct sigaction action = {};
  action.sa_handler = raise_flag;
  action.sa_flags = calls == Calls::go_on ? SA_RESTART : 0;
  ::sigaction(signal, &action, &before_);
}

SignalFlag::~SignalFlag() {
  ::sigaction(signal_, &before_, nullptr);
  flag_of(signal_) = Flag::of_nobody;
}

bool SignalFlag::raised() const { return flag_of(signal_) == Flag::up; }

bool SignalFlag::take() {
  Flag up = Flag::up;
  return flag_of(signal_).compare_exchange_strong(up, Flag::down);
}

IgnoredSignal::IgnoredSignal(int signal) : signal_(signal) {
  struct sigaction ignore = {};
  ignore.sa_handler = SIG_IGN;
  ::sigaction(signal, &ignore, &before_);
}

IgnoredSignal::~IgnoredSignal() { ::sigaction(signal_, &before_, nullptr); }

}  // namespace lockstep::base
