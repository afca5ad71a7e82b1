// What adapters rest on, as a checkpoint of theirs says it: the frozen weights beside them and how they are put in.
#pragma once

#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "rank/train/run.h"

namespace lockstep::train {

// null where the run trains all weights.
nlohmann::ordered_json adapters_json(const Run& run);

// Throws UserError(checkpoint) that names each key with both values unless `saved` (of adapters_json, or null) fits this run. What could
// not be compared is added to `notes`.
void check_same_adapters(const nlohmann::ordered_json& saved, const Run& run, const std::filesystem::path& checkpoint,
                         std::vector<std::string>& notes);

}  // namespace lockstep::train
