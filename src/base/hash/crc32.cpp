// A table of 256: these files are small.
#include "base/hash/crc32.h"

#include <array>

namespace lockstep::base {

std::uint32_t crc32(std::string_view bytes, std::uint32_t crc) {
  static constexpr auto table = [] {
    std::array<std::uint32_t, 256> made{};
    for (std::uint32_t i = 0; i < 256; ++i) {
      std::uint32_t value = i;
      for (int bit = 0; bit < 8; ++bit) value = (value & 1) != 0 ? 0xedb88320u ^ (value >> 1) : value >> 1;
      made[i] = value;
    }
    return made;
  }();
  crc = ~crc;
  for (const char byte : bytes) crc = table[(crc ^ static_cast<unsigned char>(byte)) & 0xff] ^ (crc >> 8);
  return ~crc;
}

}  // namespace lockstep::base
