// A unit that one group of ranks has loaded, on its way to those that hold the same shards.
#pragma once

#include "rank/hub/hub_folder.h"

namespace lockstep::hub {

// Collective over ranks that hold the same shard of the unit: afterwards all of them have what group `from` has loaded.
void send_unit(const model::Unit& unit, int from, const LoadingRanks& ranks);

}  // namespace lockstep::hub
