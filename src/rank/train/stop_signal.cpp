// A signal handler may only set a flag; ranks agree on the step through their next all-reduce.
#include "rank/train/stop_signal.h"

#include <atomic>
#include <csignal>

namespace lockstep::train {
namespace {

std::atomic<bool>& flag() {
  static std::atomic<bool> requested = false;
  return requested;
}

}  // namespace

void listen_for_stop() {
  flag() = false;
  struct sigaction action {};
  action.sa_handler = [](int) { flag() = true; };
  action.sa_flags = SA_RESTART;
  sigaction(SIGTERM, &action, nullptr);
  std::signal(SIGINT, SIG_IGN);
}

bool stop_requested() { return flag(); }

}  // namespace lockstep::train
