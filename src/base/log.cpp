// Writes whole lines, one write call each, so that lines of several threads do not mix.
#include "base/log.h"

#include <unistd.h>

#include <ctime>

namespace lockstep::base {
namespace {

std::string& prefix() {
  static std::string text;
  return text;
}

}  // namespace

void set_log_prefix(std::string text) { prefix() = std::move(text); }

void log_line(LogLevel level, std::string_view text) {
  static constexpr const char* names[] = {"info", "warning", "error"};
  std::timespec now{};
  std::timespec_get(&now, TIME_UTC);
  std::tm parts{};
  localtime_r(&now.tv_sec, &parts);
  const std::string line =
      fmt::format("{:02}:{:02}:{:02}.{:03} {}{}{}: {}\n", parts.tm_hour, parts.tm_min, parts.tm_sec, now.tv_nsec / 1'000'000, prefix(),
                  prefix().empty() ? "" : " ", names[static_cast<int>(level)], text);
  [[maybe_unused]] const auto written = ::write(STDERR_FILENO, line.data(), line.size());
}

}  // namespace lockstep::base
