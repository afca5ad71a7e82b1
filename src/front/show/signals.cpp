// No handlers, no flags: the signals are blocked, and one thread reads them from a descriptor.
#include "front/show/signals.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/error.h"

namespace lockstep::show {

Signals::Signals(std::function<void(int)> on_signal) : on_signal_(std::move(on_signal)) {
  ::sigemptyset(&ours_);
  for (const int signal : {SIGINT, SIGTERM}) ::sigaddset(&ours_, signal);
  struct sigaction hangup {};
  ::sigaction(SIGHUP, nullptr, &hangup);
  if (hangup.sa_handler != SIG_IGN) ::sigaddset(&ours_, SIGHUP);  // ignored: under nohup
  signals_ = base::Descriptor(::signalfd(-1, &ours_, SFD_CLOEXEC | SFD_NONBLOCK));
  closing_ = base::Descriptor(::eventfd(0, EFD_CLOEXEC));
  if (!signals_.open() || !closing_.open()) throw base::machine_error("launch", "cannot wait for signals: {}.", std::strerror(errno));
  ::pthread_sigmask(SIG_BLOCK, &ours_, &before_);
  // A shell starts background commands with these ignored: an ignored signal cannot be waited for, nor can the children of who ignores
  // SIGCHLD.
  for (const int signal : {SIGINT, SIGTERM, SIGCHLD}) ::signal(signal, SIG_DFL);
  thread_ = std::thread([this] { take(); });
}

Signals::~Signals() {
  ::eventfd_write(closing_.number(), 1);
  thread_.join();
  ::pthread_sigmask(SIG_SETMASK, &before_, nullptr);
}

void Signals::take() const {
  pollfd watched[2] = {{.fd = signals_.number(), .events = POLLIN, .revents = 0},
                       {.fd = closing_.number(), .events = POLLIN, .revents = 0}};
  while (watched[1].revents == 0) {
    ::poll(watched, 2, -1);
    signalfd_siginfo info{};
    while (::read(signals_.number(), &info, sizeof info) == sizeof info) on_signal_(static_cast<int>(info.ssi_signo));
  }
}

}  // namespace lockstep::show
