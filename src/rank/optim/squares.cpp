// Says where sums begin and end, makes this rank's, and adds all of them up.
#include "rank/optim/squares.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include <algorithm>

#include "layout/spread/placement.h"
#include "rank/kernels/kernels.h"

namespace lockstep::optim {
namespace {

constexpr std::int64_t block = kernels::kSquareBlock, stretch = layout::slice_grain;
static_assert(block % stretch == 0, "a block is whole stretches");

}  // namespace

template <typename Visit>
void Squares::for_mine(const Visit& visit) const {
  for (const model::HeldSlice& slice : store_.counts()) {
    for (std::size_t i = first_[slice.unit]; i < summands_.size() && summands_[i].unit == slice.unit; ++i)
      if (summands_[i].begin >= slice.begin && summands_[i].begin < slice.begin + slice.count) visit(i, slice);
  }
}

Squares::Squares(const model::Store& store) : store_(store), device_(store.options(0).device()), first_(store.units()) {
  for (std::size_t unit = store.units(); unit-- > 0;) {
    first_[unit] = summands_.size();
    if (store.trained(unit)) cut(unit, device_.is_cpu());
  }
  std::vector<std::int64_t> mine;
  for_mine([&](std::size_t index, const model::HeldSlice&) { mine.push_back(static_cast<std::int64_t>(index)); });
  // Put there once: to copy it in every step would let the host wait for all that the device has still to do.
  if (std::ssize(mine) != sums()) mine_ = at::tensor(mine, at::kLong).to(device_);
}

void Squares::cut(std::size_t unit, bool in_stretches) {
  const std::int64_t elements = store_.flat(unit).elements;
  std::vector<std::int64_t> cuts = store_.cuts(unit);
  if (cuts.empty()) return summands_.push_back({unit, 0, elements, 0});
  whole_ = false;
  cuts.push_back(elements);
  std::int64_t at = 0;
  for (const std::int64_t end : cuts) {
    if (!in_stretches) summands_.push_back({unit, at, end - at, 0});
    while (in_stretches && at < end) {
      // What no cut goes through is summed at once.
      const bool whole_block = at % block == 0 && (at + block <= end || end == elements);
      const std::int64_t next = std::min(end, at + (whole_block ? block : stretch));
      summands_.push_back({unit, at, next - at, at / block});
      at = next;
    }
    at = end;
  }
}

at::Tensor Squares::measure() const {
  std::vector<at::Tensor> mine;
  for_mine([&](std::size_t index, const model::HeldSlice& slice) {
    mine.push_back(slice.gradients.narrow(0, summands_[index].begin - slice.begin, summands_[index].count));
  });
  if (!mine_.defined()) return kernels::sum_of_squares(mine);
  const at::Tensor all = at::zeros({sums()}, at::TensorOptions().dtype(at::kDouble).device(device_));
  if (mine.empty()) return all;
  return all.index_copy_(0, mine_, kernels::sum_of_squares(mine));
}

at::Tensor Squares::by_unit(const at::Tensor& sums) const {
  if (whole_ || !sums.is_cpu()) return sums;
  std::vector<double> units;
  const auto* sum = sums.const_data_ptr<double>();
  for (std::size_t i = 0; i < summands_.size();) {
    const std::size_t unit = summands_[i].unit;
    double of_unit = 0;
    while (i < summands_.size() && summands_[i].unit == unit) {
      const std::int64_t in = summands_[i].block;
      double of_block = 0;
      for (; i < summands_.size() && summands_[i].unit == unit && summands_[i].block == in; ++i) of_block += sum[i];
      of_unit += of_block;
    }
    units.push_back(of_unit);
  }
  return at::tensor(units, at::kDouble);
}

}  // namespace lockstep::optim
