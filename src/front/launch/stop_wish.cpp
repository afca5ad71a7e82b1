// A pipe, because a signal handler may write to one and poll() waits for it beside the ends of processes.
#include "front/launch/stop_wish.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <vector>

#include "base/error.h"

namespace lockstep::launch {

StopWish::StopWish() {
  std::optional<base::Pipe> made = base::make_pipe(O_CLOEXEC | O_NONBLOCK);
  if (!made) throw base::machine_error("launch", "cannot make a pipe: {}.", std::strerror(errno));
  pipe_ = std::move(*made);
}

void StopWish::ask(int signal) const {
  const int before = errno;
  const auto byte = static_cast<unsigned char>(signal);
  [[maybe_unused]] const auto written = ::write(pipe_.write.number(), &byte, 1);  // a full pipe holds wishes enough
  errno = before;
}

bool StopWish::is_asked() const {
  pollfd asked{.fd = pipe_.read.number(), .events = POLLIN, .revents = 0};
  return ::poll(&asked, 1, 0) > 0;
}

int StopWish::wait(double seconds, std::span<const int> ends) const {
  std::vector<pollfd> watched = {{.fd = pipe_.read.number(), .events = POLLIN, .revents = 0}};
  for (const int end : ends) watched.push_back({.fd = end, .events = POLLIN, .revents = 0});
  ::poll(watched.data(), watched.size(), static_cast<int>(seconds * 1000));
  unsigned char signal = 0;
  return ::read(pipe_.read.number(), &signal, 1) == 1 ? signal : 0;
}

}  // namespace lockstep::launch
