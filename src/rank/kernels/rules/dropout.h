// Which elements dropout keeps, the same on a CPU and on a GPU.
#pragma once

#include <cstdint>

#include "base/hash/mix.h"

namespace lockstep::kernels {

// Whether dropout keeps an element: `threshold` of 2^32 numbers fall below it.
static constexpr bool keeps(std::uint64_t row_key, std::int64_t column, std::uint32_t threshold) {
  return std::uint32_t(base::mix(row_key ^ std::uint64_t(column)) >> 32) >= threshold;
}
static constexpr std::uint64_t dropout_row_key(std::uint64_t key, std::uint64_t site, std::int64_t time) {
  return base::mix(base::mix(key ^ base::mix(site)) + std::uint64_t(time)) << 24;  // leaves the low bits to the column
}

}  // namespace lockstep::kernels
