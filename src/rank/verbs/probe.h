// What a worker finds when it starts: LibTorch, CUDA, a model's files. `lockstep check` asks before anything is trained.
#pragma once

#include <c10/core/Device.h>

#include <string>

#include "rank/verbs/arguments.h"

namespace lockstep::verbs {

// One line of JSON. arguments: model, a folder whose weights are to be opened (their headers are read, and what they name must be there).
// UserError where something is missing.
std::string probe(const Arguments& arguments, at::Device device);

}  // namespace lockstep::verbs
