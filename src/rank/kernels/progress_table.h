// What the CUDA plug-in does for progress counters, as plain functions.
#pragma once

#include "rank/kernels/table.h"

namespace lockstep::kernels {

struct ProgressCounters {
  unsigned* device = nullptr;               // what a mark counts in
  const volatile unsigned* host = nullptr;  // where it writes the count: pinned memory that the device can reach
};

struct ProgressTable {
  ProgressCounters (*make)(int device);
  void (*destroy)(const ProgressCounters& counters);
  void (*mark)(const ProgressCounters& counters, Stream stream);
};

}  // namespace lockstep::kernels
