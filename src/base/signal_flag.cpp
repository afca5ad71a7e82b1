// One flag for each signal of the process, which has one handler for each as well.
#include "base/signal_flag.h"

#include <array>
#include <atomic>
#include <csignal>

namespace lockstep::base {
namespace {

std::atomic<bool>& flag_of(int signal) {
  static std::array<std::atomic<bool>, NSIG> flags{};
  return flags.at(static_cast<std::size_t>(signal));
}

}  // namespace

void listen_for(int signal, Calls calls) {
  flag_of(signal) = false;
  struct sigaction action = {};
  action.sa_handler = [](int number) { flag_of(number) = true; };
  action.sa_flags = calls == Calls::go_on ? SA_RESTART : 0;
  ::sigaction(signal, &action, nullptr);
}

bool raised(int signal) { return flag_of(signal); }

bool take_raised(int signal) { return flag_of(signal).exchange(false); }

}  // namespace lockstep::base
