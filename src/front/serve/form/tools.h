// What the page has other verbs do: look at data, and plan placements. Each is the command that a person would type.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "front/serve/folders.h"
#include "front/serve/form/form.h"

namespace lockstep::serve {

// `lockstep data inspect --json` with these settings.
nlohmann::ordered_json inspect_data(const Folders& folders, const Values& values, int samples);
// `lockstep plan --json` of a run with these settings, for GPUs that need not be here. `memory`: "80GiB", or nothing.
nlohmann::ordered_json plan_placements(const Folders& folders, const Values& values, int gpus, const std::string& memory);

}  // namespace lockstep::serve
