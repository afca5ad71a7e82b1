// Files that are dropped on the form: run files of ours, and those of other programs with what became of each of their keys.
#pragma once

#include <string>

#include <nlohmann/json_fwd.hpp>

namespace lockstep::serve {

// {"program": "Axolotl", "settings": {...}, "keys": [{"fate", "theirs", "value", "says", "line"}, ...]}. UserError where it is no such
// file.
nlohmann::ordered_json import_text(const std::string& text);

}  // namespace lockstep::serve
