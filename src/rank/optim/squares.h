// The squares of all gradients, counted once between the ranks, in sums whose order is the same however units are cut.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "rank/model/weights/store.h"

namespace lockstep::optim {

// A unit that one rank counts is one sum. One that several count is a list of sums, each of one rank's alone: on a CPU of the blocks and
// stretches that a rank with all of it would add up, so that the same bits come out; on a device, where ranks' gradients are sums in
// another order anyway, one per rank.
class Squares {
 public:
  // store: must outlive it. What this rank counts stays the same.
  explicit Squares(const model::Store& store);

  std::int64_t sums() const { return static_cast<std::int64_t>(summands_.size()); }
  // [sums] f64 on the device, of the gradients as they stand; 0 where another rank counts.
  at::Tensor measure() const;
  // [trained units], of all ranks' sums added up; in the order that backward completes them.
  at::Tensor by_unit(const at::Tensor& sums) const;

 private:
  struct Summand {
    std::size_t unit;
    std::int64_t begin, count;
    std::int64_t block;  // of the unit: sums of one block are added up first
  };
  void cut(std::size_t unit, bool in_stretches);
  // visit(index of a summand, the slice that it is in), of those that this rank counts.
  template <typename Visit>
  void for_mine(const Visit& visit) const;

  const model::Store& store_;
  at::Device device_;
  std::vector<Summand> summands_;   // a unit's one behind the other
  std::vector<std::size_t> first_;  // by unit: its first summand
  bool whole_ = true;               // every unit is one sum
  at::Tensor mine_;                 // on the device: which sums are this rank's; undefined: all of them
};

}  // namespace lockstep::optim
