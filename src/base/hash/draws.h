// Keyed random numbers without state: the same key gives the same number on every machine and thread.
#pragma once

#include <cstdint>

#include "base/hash/mix.h"

namespace lockstep::base {

constexpr std::uint64_t mix(std::uint64_t key, std::uint64_t value) { return mix(mix(key) ^ value); }

// A number below `bound`, as evenly as 64 bits allow.
constexpr std::uint64_t below(std::uint64_t bound, std::uint64_t bits) {
  return static_cast<std::uint64_t>((static_cast<unsigned __int128>(bits) * bound) >> 64);
}

// A row of numbers from one key.
class Draws {
 public:
  explicit Draws(std::uint64_t key) : key_(key) {}
  std::uint64_t below(std::uint64_t bound) { return base::below(bound, mix(key_ += 0x9e3779b97f4a7c15ull)); }

 private:
  std::uint64_t key_;
};

}  // namespace lockstep::base
