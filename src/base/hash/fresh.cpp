// Asks getrandom, which gives few bytes whole or not at all.
#include "base/hash/fresh.h"

#include <fmt/format.h>
#include <sys/random.h>

#include "base/error.h"

namespace lockstep::base {

std::uint32_t fresh_bits() {
  std::uint32_t bits = 0;
  check(::getrandom(&bits, sizeof bits, 0) == sizeof bits, "the kernel has random numbers");
  return bits;
}

std::string fresh_id(int words) {
  std::string id;
  for (int word = 0; word < words; ++word) id += fmt::format("{:08x}", fresh_bits());
  return id;
}

}  // namespace lockstep::base
