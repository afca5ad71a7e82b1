// A copy of the environment variables, so that what depends on them can be tested with a table.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>

namespace lockstep::launch {

using Environment = std::map<std::string, std::string, std::less<>>;

Environment process_environment();
// The value, or nothing if the variable is not set or empty.
std::optional<std::string> lookup(const Environment& environment, std::string_view name);
bool is_on(const Environment& environment, std::string_view name);  // set to 1, true, yes or on

}  // namespace lockstep::launch
