// Lines for people, on standard error. A rank's lines land in its log file, where the launcher reads them for reports.
#pragma once

#include <fmt/format.h>

#include <string>
#include <string_view>

namespace lockstep::base {

enum class LogLevel { info, warning, error };

// While it lives, lines of this process begin with it: "rank 3". Then what was before comes back.
class LogPrefix {
 public:
  explicit LogPrefix(std::string text);
  ~LogPrefix();
  LogPrefix(const LogPrefix&) = delete;
  LogPrefix& operator=(const LogPrefix&) = delete;

 private:
  std::string before_;
};

void log_line(LogLevel level, std::string_view text);

template <typename... Args>
void log_info(fmt::format_string<Args...> text, Args&&... args) {
  log_line(LogLevel::info, fmt::format(text, std::forward<Args>(args)...));
}
template <typename... Args>
void log_warning(fmt::format_string<Args...> text, Args&&... args) {
  log_line(LogLevel::warning, fmt::format(text, std::forward<Args>(args)...));
}
template <typename... Args>
void log_error(fmt::format_string<Args...> text, Args&&... args) {
  log_line(LogLevel::error, fmt::format(text, std::forward<Args>(args)...));
}

}  // namespace lockstep::base
