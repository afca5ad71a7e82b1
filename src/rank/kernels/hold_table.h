// What the CUDA plug-in does to hold a stream, as plain functions.
#pragma once

#include <cstdint>

#include "rank/kernels/table.h"

namespace lockstep::kernels {

struct HoldTable {
  void (*begin)(std::int64_t* clock, Stream stream);
  void (*hold)(const std::int64_t* clock, std::int64_t nanoseconds, int blocks, Stream stream);
};

}  // namespace lockstep::kernels
