// A model by name or by file.
#pragma once

#include <filesystem>
#include <string>

namespace lockstep::app {

// "qwen2.5-0.5b" is models/qwen2.5-0.5b.yaml here, or where this program was built; anything that is a file is itself.
// UserError that lists the names there are.
std::filesystem::path find_model(const std::string& name, const std::string& room);

}  // namespace lockstep::app
