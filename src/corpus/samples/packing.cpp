// First-fit over a tree that knows the most room left among any stretch of rows.
#include "corpus/samples/packing.h"

#include <algorithm>
#include <bit>
#include <numeric>

#include "base/error.h"

namespace lockstep::corpus {
namespace {

// Leaves are rows, in order; a node holds the most room below it.
class Rooms {
 public:
  Rooms(std::size_t rows, std::uint32_t capacity) : leaves_(std::bit_ceil(std::max<std::size_t>(rows, 1))), room_(2 * leaves_, capacity) {}

  // The first row with room for `length`, which is then taken from it.
  std::size_t place(std::uint32_t length) {
    std::size_t node = 1;
    while (node < leaves_) node = 2 * node + (room_[2 * node] >= length ? 0 : 1);
    room_[node] -= length;
    const std::size_t row = node - leaves_;
    for (node /= 2; node > 0; node /= 2) room_[node] = std::max(room_[2 * node], room_[2 * node + 1]);
    return row;
  }

 private:
  std::size_t leaves_;
  std::vector<std::uint32_t> room_;
};

std::vector<std::vector<std::uint32_t>> fit_in_order(std::span<const std::uint32_t> lengths, std::span<const std::uint32_t> order,
                                                     std::uint32_t capacity) {
  std::vector<std::vector<std::uint32_t>> rows;
  Rooms rooms(lengths.size(), capacity);  // at worst each has a row of its own
  for (const std::uint32_t index : order) {
    base::check(lengths[index] <= capacity, "what is packed fits into a row");
    const std::size_t row = rooms.place(lengths[index]);
    if (row >= rows.size()) rows.resize(row + 1);
    rows[row].push_back(index);
  }
  return rows;
}

}  // namespace

std::vector<std::vector<std::uint32_t>> first_fit(std::span<const std::uint32_t> lengths, std::uint32_t capacity) {
  std::vector<std::uint32_t> order(lengths.size());
  std::iota(order.begin(), order.end(), 0u);
  return fit_in_order(lengths, order, capacity);
}

std::vector<std::vector<std::uint32_t>> first_fit_decreasing(std::span<const std::uint32_t> lengths, std::uint32_t capacity) {
  std::vector<std::uint32_t> order(lengths.size());
  std::iota(order.begin(), order.end(), 0u);
  std::stable_sort(order.begin(), order.end(), [&](std::uint32_t a, std::uint32_t b) { return lengths[a] > lengths[b]; });
  return fit_in_order(lengths, order, capacity);
}

}  // namespace lockstep::corpus
