// What the front program tells a verb of the worker: texts by name.
#pragma once

#include <map>
#include <string>

namespace lockstep::verbs {

using Arguments = std::map<std::string, std::string>;

inline std::string argument(const Arguments& arguments, const std::string& name, const std::string& otherwise = "") {
  const auto found = arguments.find(name);
  return found == arguments.end() ? otherwise : found->second;
}

}  // namespace lockstep::verbs
