// Where a name's numbers stand, and how those of the host join those of the device.
#include "rank/model/sums/totals.h"

#include <ATen/ops/from_blob.h>
#include <ATen/ops/zeros.h>

#include <algorithm>

#include "base/error.h"

namespace lockstep::model {

Totals::Totals(std::vector<Sum> sums, at::Device device) : sums_(std::move(sums)) {
  std::int64_t count = 0;
  for (const Sum& sum : sums_) count += sum.count;
  numbers_ = at::zeros({count}, at::TensorOptions().device(device).dtype(at::kDouble));
  from_host_.assign(static_cast<std::size_t>(count), 0.0);
}

std::int64_t Totals::place(std::string_view name, std::int64_t index) const {
  std::int64_t begin = 0;
  for (const Sum& sum : sums_) {
    if (sum.name == name) {
      base::check(index >= 0 && index < sum.count, "a sum has so many numbers");
      return begin + index;
    }
    begin += sum.count;
  }
  throw base::Bug(fmt::format("nobody said that there is a sum called {}", name));
}

void Totals::clear() {
  numbers_.zero_();
  std::fill(from_host_.begin(), from_host_.end(), 0.0);
}

void Totals::add(std::string_view name, const at::Tensor& value, std::int64_t index) { of(name, index).add_(value); }

void Totals::add_all(std::string_view name, const at::Tensor& values) { all_of(name).add_(values); }

void Totals::add_from(std::string_view name, std::int64_t begin, const at::Tensor& values) {
  all_of(name).narrow(0, begin, values.numel()).add_(values);
}

void Totals::add(std::string_view name, double value, std::int64_t index) {
  from_host_[static_cast<std::size_t>(place(name, index))] += value;
}

const at::Tensor& Totals::numbers() {
  // Pageable memory has been read when the copy returns; the device is not waited for.
  const at::Tensor host = at::from_blob(from_host_.data(), {numbers_.numel()}, at::kDouble);
  numbers_.add_(host.to(numbers_.device(), at::kDouble, /*non_blocking=*/true));
  std::fill(from_host_.begin(), from_host_.end(), 0.0);
  return numbers_;
}

at::Tensor Totals::of(std::string_view name, std::int64_t index) const { return numbers_.select(0, place(name, index)); }

at::Tensor Totals::all_of(std::string_view name) const {
  const auto sum = std::find_if(sums_.begin(), sums_.end(), [&](const Sum& one) { return one.name == name; });
  return numbers_.narrow(0, place(name, 0), sum->count);
}

double Totals::read(std::span<const double> numbers, std::string_view name, std::int64_t index) const {
  return numbers[static_cast<std::size_t>(place(name, index))];
}

}  // namespace lockstep::model
