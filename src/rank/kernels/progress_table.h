// What the CUDA plug-in does for progress counters, as plain functions.
#pragma once

#include <cstdint>

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
  // A stopwatch's: since[0] is when the part of number since[1] began, 0 before the first; `seconds` has one number a part.
  void (*enter)(double* seconds, std::int64_t* since, int part, Stream stream);
  // A tape's: tape[0] counts marks, behind it `most` pairs of what and when.
  void (*record)(std::int64_t* tape, std::int64_t most, int what, Stream stream);
};

}  // namespace lockstep::kernels
