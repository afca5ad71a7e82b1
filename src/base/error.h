// The two kinds of failure: mistakes a person can mend (UserError, exit codes 2 to 6) and our own bugs (Bug, exit code 70).
#pragma once

#include <fmt/format.h>

#include <source_location>
#include <stdexcept>
#include <string>
#include <string_view>

namespace lockstep::base {

enum class ExitCode : int {
  ok = 0,
  usage = 2,       // command line or config
  machine = 3,     // devices, ports, libraries, memory
  data = 4,        // training data
  checkpoint = 5,  // saving, loading, resuming
  run = 6,         // a rank died, stalled or diverged; the loss is not finite
  bug = 70,
};

// Speaks to a person: what happened, the values, the rule, the fix. what() reads "[room] text".
class UserError : public std::runtime_error {
 public:
  UserError(ExitCode code, std::string_view room, std::string_view text);
  ExitCode code() const { return code_; }

 private:
  ExitCode code_;
};

// Something that cannot happen did. Carries where it was noticed.
class Bug : public std::logic_error {
 public:
  explicit Bug(std::string_view text, std::source_location where = std::source_location::current());
};

template <typename... Args>
UserError usage_error(std::string_view room, fmt::format_string<Args...> text, Args&&... args) {
  return {ExitCode::usage, room, fmt::format(text, std::forward<Args>(args)...)};
}
template <typename... Args>
UserError machine_error(std::string_view room, fmt::format_string<Args...> text, Args&&... args) {
  return {ExitCode::machine, room, fmt::format(text, std::forward<Args>(args)...)};
}
template <typename... Args>
UserError data_error(std::string_view room, fmt::format_string<Args...> text, Args&&... args) {
  return {ExitCode::data, room, fmt::format(text, std::forward<Args>(args)...)};
}
template <typename... Args>
UserError checkpoint_error(std::string_view room, fmt::format_string<Args...> text, Args&&... args) {
  return {ExitCode::checkpoint, room, fmt::format(text, std::forward<Args>(args)...)};
}
template <typename... Args>
UserError run_error(std::string_view room, fmt::format_string<Args...> text, Args&&... args) {
  return {ExitCode::run, room, fmt::format(text, std::forward<Args>(args)...)};
}

// Throws Bug unless `holds`: for what our own code promised, never for what a person typed.
void check(bool holds, std::string_view promise, std::source_location where = std::source_location::current());

}  // namespace lockstep::base
