// CRC-32C, the checksum that checkpoints and event files carry: tells damage, not intent.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace lockstep::base {

// `crc` continues an earlier piece. Uses the processor's instruction where there is one.
std::uint32_t crc32c(std::span<const std::byte> bytes, std::uint32_t crc = 0);
// The checksum of two pieces in a row from the checksum of each; the second has `second_bytes` bytes.
std::uint32_t crc32c_combine(std::uint32_t first, std::uint32_t second, std::uint64_t second_bytes);

}  // namespace lockstep::base
