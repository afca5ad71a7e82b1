// For verbs that one worker does alone: it takes this process's place.
#pragma once

#include <string>
#include <vector>

#include "front/launch/environment.h"

namespace lockstep::app {

// UserError unless `run` is a folder that `lockstep train` made. `verb`: "generate".
void expect_run_folder(const std::string& verb, const std::string& run);

// Starts lockstep-worker with `arguments` (its verb first) instead of this program. LOCKSTEP_DEVICE says on what; no other ranks.
[[noreturn]] void become_worker(const std::string& verb, std::vector<std::string> arguments, launch::Environment environment);

}  // namespace lockstep::app
