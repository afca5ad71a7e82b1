// Rows in which every pair of values meets.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace lockstep::layouts {

// sizes: values of each column. Rows of value numbers, as few as a greedy choice finds, the same ones every time.
std::vector<std::vector<std::size_t>> covering_rows(const std::vector<std::size_t>& sizes);
// `more` others, none twice, drawn from a seed for as long as there are any.
void add_drawn_rows(std::vector<std::vector<std::size_t>>& rows, const std::vector<std::size_t>& sizes, std::size_t more,
                    std::uint64_t seed);

}  // namespace lockstep::layouts
