// The global order of samples: position -> sample, a pure function of seed and epoch.
#pragma once

#include <cstdint>

namespace lockstep::corpus {

// Position -> sample within an epoch: a keyed permutation of [0, samples), computed, not stored.
class Order {
 public:
  Order(std::int64_t samples, std::int64_t seed, std::int64_t epoch, bool shuffle);
  std::int64_t sample_at(std::int64_t position) const;

 private:
  std::int64_t samples_;
  std::uint64_t key_;
  bool shuffle_;
  int half_bits_;
};

}  // namespace lockstep::corpus
