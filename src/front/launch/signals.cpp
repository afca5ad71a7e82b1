// Signals as something to wait for: no handlers, no flags, one thread.
#include <csignal>
#include <ctime>

#include "front/launch/launch.h"

namespace lockstep::launch {

struct Signals::Saved {
  sigset_t mask;
  sigset_t ours;
  struct sigaction pipe;
};

Signals::Signals() : saved_(std::make_unique<Saved>()) {
  ::sigemptyset(&saved_->ours);
  for (const int signal : {SIGINT, SIGTERM, SIGCHLD}) ::sigaddset(&saved_->ours, signal);
  struct sigaction hangup {};
  ::sigaction(SIGHUP, nullptr, &hangup);
  if (hangup.sa_handler != SIG_IGN) ::sigaddset(&saved_->ours, SIGHUP);  // ignored: under nohup
  ::sigprocmask(SIG_BLOCK, &saved_->ours, &saved_->mask);
  // A shell starts background commands with these ignored, and an ignored signal cannot be waited for.
  for (const int signal : {SIGINT, SIGTERM, SIGCHLD}) ::signal(signal, SIG_DFL);
  // Training goes on when nobody reads our output any more.
  struct sigaction ignore {};
  ignore.sa_handler = SIG_IGN;
  ::sigaction(SIGPIPE, &ignore, &saved_->pipe);
}

Signals::~Signals() {
  ::sigaction(SIGPIPE, &saved_->pipe, nullptr);
  ::sigprocmask(SIG_SETMASK, &saved_->mask, nullptr);
}

int Signals::wait(double seconds) {
  timespec time{};
  time.tv_sec = static_cast<std::time_t>(seconds);
  time.tv_nsec = static_cast<long>((seconds - static_cast<double>(time.tv_sec)) * 1e9);
  const int signal = ::sigtimedwait(&saved_->ours, nullptr, &time);
  return signal > 0 ? signal : 0;
}

}  // namespace lockstep::launch
