// Packing: which records share a row of seq_len positions.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace lockstep::corpus {

// Puts each length into the first row that has room for it, opening a new one where none has. Rows hold indices into `lengths` in
// the order they were put in. Lengths are at most `capacity`. O(n log n).
std::vector<std::vector<std::uint32_t>> first_fit(std::span<const std::uint32_t> lengths, std::uint32_t capacity);
// The same with the longest first, which wastes least.
std::vector<std::vector<std::uint32_t>> first_fit_decreasing(std::span<const std::uint32_t> lengths, std::uint32_t capacity);

}  // namespace lockstep::corpus
