// What must hold between settings, each broken rule said in one sentence with the values and the fix.
#pragma once

#include <string>
#include <vector>

#include "config/config.h"

namespace lockstep::config {

std::vector<std::string> broken_rules(const Settings& settings);

// The multiples of `step` next to `value`, for fixes: "96 or 120".
std::string nearest_multiples(std::int64_t value, std::int64_t step);

}  // namespace lockstep::config
