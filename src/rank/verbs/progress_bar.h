// A bar on standard error for long writes, where that is a terminal.
#pragma once

#include <fmt/format.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <string>

#include "base/clock.h"
#include "base/text.h"

namespace lockstep::verbs {

// A line that is written over, ten times a second at most.
class ProgressBar {
 public:
  void show(std::uint64_t bytes, std::uint64_t of) {
    if (!terminal_ || (bytes < of && base::seconds_since(shown_ns_) < 0.1)) return;
    shown_ns_ = base::now_ns();
    const int width = 30, full = of > 0 ? static_cast<int>(width * bytes / of) : width;
    fmt::print(stderr, "\r[{}{}] {} of {} ", std::string(static_cast<std::size_t>(full), '='),
               std::string(static_cast<std::size_t>(width - full), ' '), base::human_bytes(bytes), base::human_bytes(of));
    std::fflush(stderr);
  }
  ~ProgressBar() {
    if (shown_ns_ > 0) fmt::print(stderr, "\r\x1b[K");
  }

 private:
  bool terminal_ = ::isatty(STDERR_FILENO) == 1;
  std::int64_t shown_ns_ = 0;
};

}  // namespace lockstep::verbs
