// What the page has other verbs do: look at data, and plan placements. Each is the command that a person would type.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "front/serve/folders.h"
#include "front/serve/form/form.h"

namespace lockstep::serve {

// `lockstep data inspect --json` with these settings.
nlohmann::ordered_json inspect_data(const Folders& folders, const Values& values, int samples);
// As a person typed them: the verb says what is wrong with them.
struct GpusAsked {
  std::string gpus, memory;  // "8"; "80GiB", or nothing
};
// `lockstep plan --json` of a run with these settings, for GPUs that need not be here.
nlohmann::ordered_json plan_placements(const Folders& folders, const Values& values, const GpusAsked& asked);

}  // namespace lockstep::serve
