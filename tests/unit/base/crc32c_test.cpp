// CRC-32C against its definition, and pieces against the whole.
#include <gtest/gtest.h>

#include <random>

#include "base/files.h"
#include "base/hash/crc32c.h"

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

// Any number of ranges, empty ones too, joined from the front or pairwise from anywhere.
TEST(Crc32c, RangesJoinInAnyGrouping) {
  const std::string text = noise(50021);
  const std::uint32_t whole = crc32c(bytes_of(text));
  std::mt19937 random(3);
  for (int round = 0; round < 50; ++round) {
    struct Range {
      std::uint32_t checksum;
      std::uint64_t bytes;
    };
    std::vector<std::size_t> borders = {0, text.size()};
    for (unsigned cut = random() % 9; cut > 0; --cut) borders.push_back(random() % 3 == 0 ? borders.back() : random() % text.size());
    std::sort(borders.begin(), borders.end());
    std::vector<Range> ranges;
    for (std::size_t i = 0; i + 1 < borders.size(); ++i) {
      const auto bytes = bytes_of(text).subspan(borders[i], borders[i + 1] - borders[i]);
      ranges.push_back({crc32c(bytes), bytes.size()});
    }
    while (ranges.size() > 1) {
      const auto first = ranges.begin() + static_cast<std::ptrdiff_t>(random() % (ranges.size() - 1));
      const Range second = first[1];
      *first = {crc32c_combine(first->checksum, second.checksum, second.bytes), first->bytes + second.bytes};
      ranges.erase(first + 1);
    }
    EXPECT_EQ(ranges[0].checksum, whole);
  }
}

}  // namespace
}  // namespace lockstep::base
