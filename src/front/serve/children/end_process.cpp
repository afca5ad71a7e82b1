// Asks, asks again, kills.
#include "front/serve/children/end_process.h"

#include <cerrno>
#include <chrono>
#include <csignal>
#include <thread>

#include "base/clock.h"
#include "base/process.h"

namespace lockstep::serve {
namespace {

constexpr double asked_s = 0.2, asked_again_s = 5, killed_s = 5;

// A process that has ended and waits for its parent to notice is gone too.
bool is_gone(pid_t pid) {
  if (::kill(pid, 0) != 0 && errno == ESRCH) return true;
  const auto stat = base::process_stat(pid);
  return stat.empty() || stat[0] == "Z" || stat[0] == "X";
}

bool is_gone_within(pid_t pid, double seconds) {
  const std::int64_t begun = base::now_ns();
  while (!is_gone(pid)) {
    if (base::seconds_since(begun) > seconds) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  return true;
}

}  // namespace

bool end_process(pid_t pid) {
  struct Step {
    int signal;
    double wait_s;
  };
  for (const auto& [signal, wait_s] : {Step{SIGTERM, asked_s}, Step{SIGTERM, asked_again_s}, Step{SIGKILL, killed_s}}) {
    if (::kill(pid, signal) != 0 && errno != ESRCH) return false;
    if (is_gone_within(pid, wait_s)) return true;
  }
  return false;
}

}  // namespace lockstep::serve
