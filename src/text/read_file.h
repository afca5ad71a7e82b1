// A whole file as text, with the room's words where it cannot be read.
#pragma once

#include <filesystem>
#include <string>

namespace lockstep::text {

std::string read_file(const std::filesystem::path& path);  // throws UserError(ExitCode::data)

}  // namespace lockstep::text
