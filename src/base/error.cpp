// What an error says.
#include "base/error.h"

namespace lockstep::base {

UserError::UserError(ExitCode code, std::string_view room, std::string_view text)
    : std::runtime_error(fmt::format("[{}] {}", room, text)), code_(code) {}

Bug::Bug(std::string_view text, std::source_location where)
    : std::logic_error(fmt::format("bug in lockstep: {} ({}:{}, {})", text, where.file_name(), where.line(), where.function_name())) {}

void check(bool holds, std::string_view promise, std::source_location where) {
  if (!holds) throw Bug(promise, where);
}

}  // namespace lockstep::base
