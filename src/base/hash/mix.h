// A bijection of 64-bit numbers whose output bits all depend on all input bits (the finalizer of splitmix64), for CPU and GPU.
#pragma once

#include <cstdint>

namespace lockstep::base {

// static: the CPU kernels are compiled once per instruction set, and the linker must not pick one's copy for all.
static constexpr std::uint64_t mix(std::uint64_t value) {
  value += 0x9e3779b97f4a7c15ull;
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9ull;
  value = (value ^ (value >> 27)) * 0x94d049bb133111ebull;
  return value ^ (value >> 31);
}

}  // namespace lockstep::base
