// The global order: a Feistel network over the next even power of two, walked until it lands inside [0, samples).
#include "corpus/samples/order.h"

#include <algorithm>
#include <bit>

#include "base/hash/draws.h"
#include "base/error.h"

namespace lockstep::corpus {
namespace {

// Four rounds already look random; two more cost nanoseconds and leave no visible structure in small domains.
constexpr int rounds = 6;

}  // namespace

Order::Order(std::int64_t samples, std::int64_t seed, std::int64_t epoch, bool shuffle)
    : samples_(samples), key_(base::mix(static_cast<std::uint64_t>(seed), static_cast<std::uint64_t>(epoch))), shuffle_(shuffle) {
  base::check(samples > 0, "an order needs at least one sample");
  // Two equal halves that together count past the last sample: at most four times as many places as samples.
  const int bits = std::bit_width(static_cast<std::uint64_t>(samples - 1));
  half_bits_ = std::max(1, (bits + 1) / 2);
}

std::int64_t Order::sample_at(std::int64_t position) const {
  base::check(position >= 0 && position < samples_, "a position lies within its epoch");
  if (!shuffle_) return position;
  const std::uint64_t mask = (std::uint64_t{1} << half_bits_) - 1;
  auto place = static_cast<std::uint64_t>(position);
  do {
    std::uint64_t left = place >> half_bits_;
    std::uint64_t right = place & mask;
    for (int round = 0; round < rounds; ++round) {
      const std::uint64_t swapped = left ^ (base::mix(key_ + static_cast<std::uint64_t>(round), right) & mask);
      left = right;
      right = swapped;
    }
    place = left << half_bits_ | right;
  } while (place >= static_cast<std::uint64_t>(samples_));
  return static_cast<std::int64_t>(place);
}

}  // namespace lockstep::corpus
