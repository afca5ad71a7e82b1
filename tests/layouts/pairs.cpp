// Starts each row from a pair that has not met yet and fills it with what meets most others for the first time.
#include "layouts/pairs.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <random>
#include <set>
#include <tuple>

namespace lockstep::layouts {
namespace {

using Row = std::vector<std::size_t>;
using Pair = std::tuple<std::size_t, std::size_t, std::size_t, std::size_t>;  // column, value, a later column, value

Pair pair_of(std::size_t a, std::size_t value_a, std::size_t b, std::size_t value_b) {
  return a < b ? Pair{a, value_a, b, value_b} : Pair{b, value_b, a, value_a};
}

std::set<Pair> all_pairs(const Row& sizes) {
  std::set<Pair> pairs;
  for (std::size_t a = 0; a < sizes.size(); ++a)
    for (std::size_t b = a + 1; b < sizes.size(); ++b)
      for (std::size_t i = 0; i < sizes[a]; ++i)
        for (std::size_t j = 0; j < sizes[b]; ++j) pairs.insert({a, i, b, j});
  return pairs;
}

}  // namespace

std::vector<Row> covering_rows(const Row& sizes) {
  std::set<Pair> open = all_pairs(sizes);
  std::vector<Row> rows, used;
  for (const std::size_t size : sizes) used.emplace_back(size);
  constexpr std::size_t unset = ~std::size_t{0};
  while (!open.empty()) {
    const auto [first, first_value, second, second_value] = *open.begin();
    Row row(sizes.size(), unset);
    row[first] = first_value;
    row[second] = second_value;
    for (std::size_t column = 0; column < sizes.size(); ++column) {
      if (row[column] != unset) continue;
      const auto gain = [&](std::size_t value) {
        std::size_t meets = 0;
        for (std::size_t other = 0; other < sizes.size(); ++other)
          if (other != column && row[other] != unset) meets += open.count(pair_of(column, value, other, row[other]));
        return meets;
      };
      row[column] = 0;
      for (std::size_t value = 1; value < sizes[column]; ++value) {
        const auto better = std::pair(gain(value), -std::ptrdiff_t(used[column][value]));
        if (better > std::pair(gain(row[column]), -std::ptrdiff_t(used[column][row[column]]))) row[column] = value;
      }
    }
    for (std::size_t a = 0; a < sizes.size(); ++a) {
      ++used[a][row[a]];
      for (std::size_t b = a + 1; b < sizes.size(); ++b) open.erase({a, row[a], b, row[b]});
    }
    rows.push_back(std::move(row));
  }
  return rows;
}

void add_drawn_rows(std::vector<Row>& rows, const Row& sizes, std::size_t more, std::uint64_t seed) {
  std::set<Row> known(rows.begin(), rows.end());
  const std::size_t all = std::accumulate(sizes.begin(), sizes.end(), std::size_t{1}, std::multiplies());
  std::mt19937_64 draw(seed);
  for (const std::size_t wanted = std::min(all, rows.size() + more); rows.size() < wanted;) {
    Row row;
    for (const std::size_t size : sizes) row.push_back(draw() % size);
    if (known.insert(row).second) rows.push_back(std::move(row));
  }
}

}  // namespace lockstep::layouts
