// Packing: every record once, no row over its capacity, first-fit by its definition.
#include <gtest/gtest.h>

#include <numeric>
#include <random>

#include "corpus/samples/packing.h"

namespace lockstep::corpus {
namespace {

// First-fit as the books have it: look at each row in turn.
std::vector<std::vector<std::uint32_t>> plainly(const std::vector<std::uint32_t>& lengths, std::uint32_t capacity) {
  std::vector<std::vector<std::uint32_t>> rows;
  std::vector<std::uint32_t> room;
  for (std::uint32_t i = 0; i < lengths.size(); ++i) {
    std::size_t row = 0;
    while (row < rows.size() && room[row] < lengths[i]) ++row;
    if (row == rows.size()) {
      rows.emplace_back();
      room.push_back(capacity);
    }
    rows[row].push_back(i);
    room[row] -= lengths[i];
  }
  return rows;
}

TEST(Packing, IsFirstFit) {
  std::mt19937 random(7);
  for (int round = 0; round < 200; ++round) {
    std::vector<std::uint32_t> lengths(random() % 60);
    for (auto& length : lengths) length = 1 + static_cast<std::uint32_t>(random() % 32);
    EXPECT_EQ(first_fit(lengths, 32), plainly(lengths, 32));
  }
}

TEST(Packing, DecreasingHoldsEveryRecordOnceAndWastesLittle) {
  std::mt19937 random(8);
  for (int round = 0; round < 20; ++round) {
    std::vector<std::uint32_t> lengths(3000);
    for (auto& length : lengths) length = 1 + static_cast<std::uint32_t>(random() % 700);
    const auto rows = first_fit_decreasing(lengths, 1024);
    std::vector<int> seen(lengths.size());
    for (const auto& row : rows) {
      std::uint32_t held = 0;
      for (const std::uint32_t index : row) {
        ++seen[index];
        held += lengths[index];
      }
      EXPECT_LE(held, 1024u);
    }
    EXPECT_EQ(seen, std::vector<int>(lengths.size(), 1));
    const double tokens = std::accumulate(lengths.begin(), lengths.end(), 0.0);
    EXPECT_GT(tokens / (1024.0 * static_cast<double>(rows.size())), 0.98);
  }
}

}  // namespace
}  // namespace lockstep::corpus
