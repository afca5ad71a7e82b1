// What must hold between settings, each broken rule said in one sentence with the values and the fix.
#pragma once

#include <string>
#include <vector>

#include "config/config.h"

namespace lockstep::config {

std::vector<std::string> broken_rules(const Settings& settings);

}  // namespace lockstep::config
