// Rows in which every pair of values meets.
#pragma once

#include <cstddef>
#include <vector>

namespace lockstep::layouts {

// sizes: values of each column. Rows of value numbers, as few as a greedy choice finds, the same ones every time; then `more` others, none
// twice, drawn from a fixed seed for as long as there are any.
std::vector<std::vector<std::size_t>> covering_rows(const std::vector<std::size_t>& sizes, std::size_t more = 0);

}  // namespace lockstep::layouts
