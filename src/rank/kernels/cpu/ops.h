// The CPU's kernels of one instruction set, and the column sums that several of them end with.
#pragma once

#include "rank/kernels/cpu/cpu.h"

namespace lockstep::kernels {

inline constexpr int kCpuPartialRows = 16;

namespace LOCKSTEP_ISA {

LOCKSTEP_OPS(LOCKSTEP_DECLARE_OP)
const Table& table();

namespace {

// target += sum over the slices, in f32.
[[maybe_unused]] void add_partials(const float* partials, std::int64_t slices, std::int64_t width, void* target, Type type,
                                   std::int64_t stride = 0) {
  if (stride == 0) stride = width;
  by_type(type, [&]<typename T>(T) {
    auto* out = static_cast<T*>(target);
    for (std::int64_t i = 0; i < width; ++i) {
      float sum = 0;
      for (std::int64_t s = 0; s < slices; ++s) sum += partials[s * stride + i];
      store(out[i], load(out[i]) + sum);
    }
  });
}

}  // namespace
}  // namespace LOCKSTEP_ISA
}  // namespace lockstep::kernels
