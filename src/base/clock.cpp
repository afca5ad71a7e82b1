// Reads the clocks.
#include "base/clock.h"

#include <ctime>

namespace lockstep::base {

std::int64_t now_ns() {
  timespec time{};
  clock_gettime(CLOCK_MONOTONIC, &time);
  return static_cast<std::int64_t>(time.tv_sec) * 1'000'000'000 + time.tv_nsec;
}

double seconds_since(std::int64_t start_ns) { return static_cast<double>(now_ns() - start_ns) * 1e-9; }

namespace {

std::string formatted(const char* format, const std::tm& parts) {
  char text[32];
  std::strftime(text, sizeof text, format, &parts);
  return text;
}

}  // namespace

std::string utc_time() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  return formatted("%Y-%m-%dT%H:%M:%SZ", *gmtime_r(&now, &parts));
}

std::string time_label(std::int64_t time) {
  const std::time_t seconds = time;
  std::tm parts{};
  return formatted("%Y%m%d-%H%M%S", *localtime_r(&seconds, &parts));
}

}  // namespace lockstep::base
