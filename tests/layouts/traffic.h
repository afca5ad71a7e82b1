// What a step should move between ranks, from the layout's tables alone.
#pragma once

#include <vector>

#include "config/run_config.h"
#include "layout/spread/schedule.h"

namespace lockstep::layouts {

// Of one rank, in one step. Nothing moves through a store of whole units.
layout::Traffic planned_traffic(const config::RunConfig& config, int ranks);

}  // namespace lockstep::layouts
