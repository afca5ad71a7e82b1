// Flags of the verbs that have their own: read with CLI11, refused in our words.
#pragma once

#include <CLI/CLI.hpp>
#include <span>
#include <string>

namespace lockstep::app {

// False where help was asked for, and printed. Underscores in a flag's name are taken as dashes. `verb`: "generate".
bool read_flags(CLI::App& app, std::span<const std::string> args, const std::string& verb);

}  // namespace lockstep::app
