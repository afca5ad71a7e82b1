// CRC-32C by the processor's instruction, three pieces at a time, or by tables.
#include "base/hash/crc32c.h"

#include <array>
#include <cstring>

namespace lockstep::base {
namespace {

constexpr std::uint32_t polynomial = 0x82f63b78u;  // bits reversed: bit 31 is the constant term

constexpr std::array<std::uint32_t, 256> make_table() {
  std::array<std::uint32_t, 256> table{};
  for (std::uint32_t i = 0; i < 256; ++i) {
    std::uint32_t value = i;
    for (int bit = 0; bit < 8; ++bit) value = (value >> 1) ^ ((value & 1) ? polynomial : 0u);
    table[i] = value;
  }
  return table;
}

// The product of two polynomials modulo ours. A checksum register is such a polynomial, and eight zero bytes after it multiply it by x^64.
constexpr std::uint32_t multiply(std::uint32_t a, std::uint32_t b) {
  std::uint32_t product = 0;
  for (std::uint32_t bit = 0x80000000u; bit != 0; bit >>= 1) {
    if (a & bit) product ^= b;
    b = (b >> 1) ^ ((b & 1) ? polynomial : 0u);
  }
  return product;
}

// x^(8 * bytes): what `bytes` zero bytes multiply a register by.
constexpr std::uint32_t zero_bytes(std::uint64_t bytes) {
  std::uint32_t result = 0x80000000u;  // 1
  std::uint32_t power = 0x00800000u;   // x^8
  for (; bytes != 0; bytes >>= 1) {
    if (bytes & 1) result = multiply(result, power);
    power = multiply(power, power);
  }
  return result;
}

std::uint32_t by_table(std::span<const std::byte> bytes, std::uint32_t crc) {
  static constexpr auto table = make_table();
  for (std::byte byte : bytes) crc = table[(crc ^ static_cast<std::uint8_t>(byte)) & 0xff] ^ (crc >> 8);
  return crc;
}

#if defined(__x86_64__)
std::uint64_t word_at(const std::byte* bytes) {
  std::uint64_t word;
  std::memcpy(&word, bytes, 8);
  return word;
}

// The instruction takes three cycles but one can start each cycle: three independent pieces keep it busy.
constexpr std::size_t piece_bytes = 8192;

__attribute__((target("sse4.2"))) std::uint32_t by_instruction(std::span<const std::byte> bytes, std::uint32_t crc) {
  static constexpr std::uint32_t after_one = zero_bytes(piece_bytes), after_two = zero_bytes(2 * piece_bytes);
  while (bytes.size() >= 3 * piece_bytes) {
    std::uint64_t first = crc, second = 0, third = 0;
    const std::byte* at = bytes.data();
    for (const std::byte* end = at + piece_bytes; at != end; at += 8) {
      first = __builtin_ia32_crc32di(first, word_at(at));
      second = __builtin_ia32_crc32di(second, word_at(at + piece_bytes));
      third = __builtin_ia32_crc32di(third, word_at(at + 2 * piece_bytes));
    }
    crc = multiply(static_cast<std::uint32_t>(first), after_two) ^ multiply(static_cast<std::uint32_t>(second), after_one) ^
          static_cast<std::uint32_t>(third);
    bytes = bytes.subspan(3 * piece_bytes);
  }
  std::uint64_t wide = crc;
  for (; bytes.size() >= 8; bytes = bytes.subspan(8)) wide = __builtin_ia32_crc32di(wide, word_at(bytes.data()));
  return by_table(bytes, static_cast<std::uint32_t>(wide));
}
#endif

}  // namespace

std::uint32_t crc32c(std::span<const std::byte> bytes, std::uint32_t crc) {
#if defined(__x86_64__)
  static const bool has_instruction = __builtin_cpu_supports("sse4.2");
  if (has_instruction) return ~by_instruction(bytes, ~crc);
#endif
  return ~by_table(bytes, ~crc);
}

std::uint32_t crc32c_combine(std::uint32_t first, std::uint32_t second, std::uint64_t second_bytes) {
  return multiply(first, zero_bytes(second_bytes)) ^ second;
}

}  // namespace lockstep::base
