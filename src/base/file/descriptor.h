// A file descriptor that is closed by its owner.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <optional>
#include <utility>

namespace lockstep::base {

class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int number) : number_(number) {}
  Descriptor(Descriptor&& other) noexcept : number_(std::exchange(other.number_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    if (this != &other) close();
    number_ = std::exchange(other.number_, -1);
    return *this;
  }
  ~Descriptor() { close(); }

  int number() const { return number_; }
  bool open() const { return number_ >= 0; }
  void close() {
    if (open()) ::close(release());
  }
  int release() { return std::exchange(number_, -1); }  // whoever takes it closes it

 private:
  int number_ = -1;
};

struct Pipe {
  Descriptor read, write;
};
// flags: O_CLOEXEC, O_NONBLOCK. Nothing, with errno, where the process has no descriptors left.
inline std::optional<Pipe> make_pipe(int flags) {
  int ends[2];
  if (::pipe2(ends, flags) != 0) return std::nullopt;
  return Pipe{Descriptor(ends[0]), Descriptor(ends[1])};
}

}  // namespace lockstep::base
