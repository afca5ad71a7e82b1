// A unit that ranks hold in shards, and the memory in which it is whole for a while.
#pragma once

#include <optional>

#include "rank/model/weights/unit.h"

namespace lockstep::parallel {

struct CutUnit {
  model::Unit* unit = nullptr;
  std::optional<std::size_t> slot = {};  // memory that it takes in turns with others; nothing: memory of its own
};

}  // namespace lockstep::parallel
