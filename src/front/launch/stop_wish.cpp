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
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0) throw base::machine_error("launch", "cannot make a pipe: {}.", std::strerror(errno));
  read_ = ends[0];
  write_ = ends[1];
}

StopWish::~StopWish() {
  ::close(read_);
  ::close(write_);
}

void StopWish::ask(int signal) const {
  const int before = errno;
  const auto byte = static_cast<unsigned char>(signal);
  [[maybe_unused]] const auto written = ::write(write_, &byte, 1);  // a full pipe holds wishes enough
  errno = before;
}

bool StopWish::is_asked() const {
  pollfd asked{.fd = read_, .events = POLLIN, .revents = 0};
  return ::poll(&asked, 1, 0) > 0;
}

int StopWish::wait(double seconds, std::span<const int> ends) const {
  std::vector<pollfd> watched = {{.fd = read_, .events = POLLIN, .revents = 0}};
  for (const int end : ends) watched.push_back({.fd = end, .events = POLLIN, .revents = 0});
  ::poll(watched.data(), watched.size(), static_cast<int>(seconds * 1000));
  unsigned char signal = 0;
  return ::read(read_, &signal, 1) == 1 ? signal : 0;
}

}  // namespace lockstep::launch
