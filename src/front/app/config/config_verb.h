// `lockstep config`: what the settings are, where they came from, what they mean.
#pragma once

#include <span>
#include <string>

namespace lockstep::app {

// Arguments after `config`. Returns the exit code; mistakes are thrown as UserError.
int run_config_verb(std::span<const std::string> args);
int run_config_import(std::span<const std::string> args);  // after `config import`

}  // namespace lockstep::app
