// A bijection of 64-bit numbers whose output bits all depend on all input bits (the finaliser of splitmix64), for CPU and GPU.
#pragma once

#include <cstdint>

namespace lockstep::kernels {

constexpr std::uint64_t mix(std::uint64_t value) {
  value += 0x9e3779b97f4a7c15ull;
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9ull;
  value = (value ^ (value >> 27)) * 0x94d049bb133111ebull;
  return value ^ (value >> 31);
}

// Whether dropout keeps an element: `threshold` of 2^32 numbers fall below it.
constexpr bool keeps(std::uint64_t row_key, std::int64_t column, std::uint32_t threshold) {
  return std::uint32_t(mix(row_key ^ std::uint64_t(column)) >> 32) >= threshold;
}
constexpr std::uint64_t dropout_row_key(std::uint64_t key, std::uint64_t site, std::int64_t time) {
  return mix(mix(key ^ mix(site)) + std::uint64_t(time)) << 24;  // leaves the low bits to the column
}

}  // namespace lockstep::kernels
