// Text waits under a lock until the loop takes it.
#include "front/http/stream.h"

#include <fmt/format.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>

#include "base/error.h"

namespace lockstep::http {

Waker::Waker() : descriptor_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  if (descriptor_ < 0) throw base::machine_error("http", "cannot make an event descriptor: {}.", std::strerror(errno));
}

Waker::~Waker() { ::close(descriptor_); }

void Waker::wake() const {
  const std::uint64_t one = 1;
  [[maybe_unused]] const auto written = ::write(descriptor_, &one, sizeof one);  // full: it is awake already
}

void Waker::clear() const {
  std::uint64_t count = 0;
  [[maybe_unused]] const auto got = ::read(descriptor_, &count, sizeof count);
}

void Stream::push(std::string_view event, std::string_view data) { append(fmt::format("event: {}\ndata: {}\n\n", event, data)); }

void Stream::comment() { append(":\n\n"); }

void Stream::end() {
  base::Lock lock(mutex_);
  ends_ = true;
  if (waker_) waker_->wake();
}

void Stream::append(std::string_view text) {
  base::Lock lock(mutex_);
  if (!open_) return;
  if (waiting_.size() + text.size() > most_waiting) {
    waiting_.clear();
    ends_ = true;
  } else {
    waiting_ += text;
  }
  if (waker_) waker_->wake();
}

void Stream::attach(std::shared_ptr<const Waker> waker) {
  base::Lock lock(mutex_);
  waker_ = std::move(waker);
  waker_->wake();  // something may wait already
}

Stream::Taken Stream::take() {
  base::Lock lock(mutex_);
  return {std::exchange(waiting_, {}), ends_};
}

}  // namespace lockstep::http
