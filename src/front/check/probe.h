// A worker that starts, looks and ends: what only LibTorch and CUDA can tell.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "front/check/check.h"

namespace lockstep::check {

// What the worker answers. `arguments`: of its verb, such as --model DIR. UserError with its last words where it fails.
nlohmann::json probe_worker(const Context& context, std::vector<std::string> arguments);

}  // namespace lockstep::check
