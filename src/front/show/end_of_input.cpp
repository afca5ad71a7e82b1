// One thread that reads to the end. Before signals are caught its SIGTERM ends the process, which has no ranks yet.
#include "front/show/end_of_input.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>

#include "base/error.h"
#include "base/quiet_thread.h"

namespace lockstep::show {

EndOfInput::EndOfInput() : closing_(::eventfd(0, EFD_CLOEXEC)) {
  if (!closing_.open()) throw base::machine_error("launch", "cannot wait for the end of standard input: {}.", std::strerror(errno));
  thread_ = base::quiet_thread([this] { wait(); });
}

EndOfInput::~EndOfInput() {
  ::eventfd_write(closing_.number(), 1);
  thread_.join();
}

void EndOfInput::wait() const {
  pollfd watched[2] = {{.fd = STDIN_FILENO, .events = POLLIN, .revents = 0}, {.fd = closing_.number(), .events = POLLIN, .revents = 0}};
  for (;;) {
    if (::poll(watched, 2, -1) < 0 && errno != EINTR) return;
    if (watched[1].revents != 0) return;
    if (watched[0].revents == 0) continue;
    char dropped[4096];
    const ssize_t got = ::read(STDIN_FILENO, dropped, sizeof dropped);
    if (got > 0 || (got < 0 && (errno == EINTR || errno == EAGAIN))) continue;
    ::kill(::getpid(), SIGTERM);
    return;
  }
}

}  // namespace lockstep::show
