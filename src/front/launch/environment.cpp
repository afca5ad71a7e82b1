// Reads environ once.
#include "front/launch/environment.h"

#include <unistd.h>

#include "base/text.h"

namespace lockstep::launch {

Environment process_environment() {
  Environment environment;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text(*entry);
    const std::size_t equals = text.find('=');
    if (equals != std::string_view::npos) environment.emplace(text.substr(0, equals), text.substr(equals + 1));
  }
  return environment;
}

std::optional<std::string> lookup(const Environment& environment, std::string_view name) {
  const auto found = environment.find(name);
  if (found == environment.end() || found->second.empty()) return std::nullopt;
  return found->second;
}

bool is_on(const Environment& environment, std::string_view name) {
  const std::string value = base::lower(lookup(environment, name).value_or(""));
  return value == "1" || value == "true" || value == "yes" || value == "on";
}

}  // namespace lockstep::launch
