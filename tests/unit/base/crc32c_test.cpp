// CRC-32C against its definition, and pieces against the whole.
#include <gtest/gtest.h>

#include <random>

#include "base/files.h"

namespace lockstep::base {
namespace {

std::span<const std::byte> bytes_of(std::string_view text) { return std::as_bytes(std::span(text.data(), text.size())); }

// One bit after the other, as the polynomial says.
std::uint32_t by_definition(std::string_view text) {
  std::uint32_t crc = ~0u;
  for (const char byte : text) {
    crc ^= static_cast<unsigned char>(byte);
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) ? 0x82f63b78u : 0u);
  }
  return ~crc;
}

std::string noise(std::size_t size) {
  std::mt19937 random(static_cast<unsigned>(size));
  std::string text(size, '\0');
  for (char& byte : text) byte = static_cast<char>(random());
  return text;
}

TEST(Crc32c, KnownValues) {
  EXPECT_EQ(crc32c(bytes_of("")), 0u);
  EXPECT_EQ(crc32c(bytes_of("123456789")), 0xe3069283u);
  EXPECT_EQ(crc32c(bytes_of(std::string(32, '\0'))), 0x8a9136aau);
}

TEST(Crc32c, EqualsItsDefinitionForEverySize) {
  for (const std::size_t size : {1, 7, 8, 9, 63, 1000, 8192, 24575, 24576, 24577, 24584, 49152, 100003}) {
    const std::string text = noise(size + 3);
    EXPECT_EQ(crc32c(bytes_of(text).subspan(3)), by_definition(std::string_view(text).substr(3))) << size;  // not aligned
  }
}

TEST(Crc32c, PiecesGiveTheWhole) {
  const std::string text = noise(60000);
  const std::uint32_t whole = crc32c(bytes_of(text));
  for (const std::size_t cut : {0, 1, 5, 4096, 30000, 59999, 60000}) {
    const auto first = bytes_of(text).first(cut), second = bytes_of(text).subspan(cut);
    EXPECT_EQ(crc32c(second, crc32c(first)), whole) << cut;
    EXPECT_EQ(crc32c_combine(crc32c(first), crc32c(second), second.size()), whole) << cut;
  }
}

}  // namespace
}  // namespace lockstep::base
