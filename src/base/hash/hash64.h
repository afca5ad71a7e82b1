// 64-bit FNV-1a of a text: for keys and identities, not for integrity.
#pragma once

#include <cstdint>
#include <string_view>

namespace lockstep::base {

constexpr std::uint64_t hash64(std::string_view text, std::uint64_t seed = 0xcbf29ce484222325ull) {
  std::uint64_t hash = seed;
  for (unsigned char c : text) hash = (hash ^ c) * 0x100000001b3ull;
  return hash;
}

}  // namespace lockstep::base
