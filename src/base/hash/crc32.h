// CRC-32 as zlib, PNG and W&B's files count it.
#pragma once

#include <cstdint>
#include <string_view>

namespace lockstep::base {

// `crc` continues an earlier piece.
std::uint32_t crc32(std::string_view bytes, std::uint32_t crc = 0);

}  // namespace lockstep::base
