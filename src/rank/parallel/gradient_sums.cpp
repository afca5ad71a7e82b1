// Counts additions, flushes, settles.
#include "rank/parallel/gradient_sums.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <algorithm>

#include "base/error.h"

namespace lockstep::parallel {

namespace {

constexpr std::int64_t kSlice = std::int64_t(16) << 20;  // numbers of the host at a time: 64 MiB on the device

std::int64_t bytes_of(const model::HeldSlice& slice) { return 4 * slice.count; }

}  // namespace

GradientSums::GradientSums(const model::Store& store, std::vector<model::HeldSlice> slices, std::int64_t room_bytes) : store_(store) {
  for (model::HeldSlice& slice : slices) {
    const bool on_host = bytes_of(slice) > room_bytes;
    if (!on_host) room_bytes -= bytes_of(slice);
    sums_.push_back({.slice = std::move(slice), .on_host = on_host});
  }
}

bool GradientSums::on_device() const {
  return std::none_of(sums_.begin(), sums_.end(), [](const Sum& sum) { return sum.on_host; });
}

void GradientSums::added(std::optional<std::size_t> often, std::int64_t additions) {
  base::check(additions <= kMostAdditions, "a micro-step adds to no gradient more often than 16 bits allow");
  for (Sum& sum : sums_) {
    const std::int64_t each = often == sum.slice.unit ? additions : 1;
    sum.additions += each;
    sum.most = std::max(sum.most, each);
  }
}

void GradientSums::make_way() {
  for (Sum& sum : sums_)
    if (sum.additions + sum.most > kMostAdditions) flush(sum);
}

template <typename Body>
void GradientSums::in_slices(Sum& sum, Copies copies, Body body) {
  const at::Tensor& gradients = sum.slice.gradients;
  if (!sum.on_host) return body(sum.total, gradients);
  if (!slice_.defined()) slice_ = at::empty({kSlice}, gradients.options().dtype(at::kFloat));
  for (std::int64_t begin = 0; begin < gradients.numel(); begin += kSlice) {
    const std::int64_t count = std::min(kSlice, gradients.numel() - begin);
    const at::Tensor here = slice_.narrow(0, 0, count), there = sum.total.narrow(0, begin, count);
    if (copies.read) here.copy_(there, /*non_blocking=*/true);
    body(here, gradients.narrow(0, begin, count));
    if (copies.write) there.copy_(here, /*non_blocking=*/true);
  }
}

void GradientSums::flush(Sum& sum) {
  const at::Tensor& gradients = sum.slice.gradients;
  if (!sum.total.defined()) {
    const auto here = gradients.options().dtype(at::kFloat);
    const auto options = sum.on_host ? here.device(at::kCPU).pinned_memory(gradients.is_cuda()) : here;
    try {
      sum.total = at::empty({gradients.numel()}, options);
    } catch (const std::exception& error) {
      throw base::machine_error(
          "memory",
          "there is no room for {:.1f} GiB of {} memory, in which gradients of {} are summed in f32: {}. Use at most 8 "
          "micro-batches per step (trainer.gradient_accumulation), which need no such sums, or make room for them.",
          double(bytes_of(sum.slice)) / double(1 << 30), sum.on_host ? "host" : "device", store_.spec(sum.slice.unit).name,
          std::string_view(error.what()).substr(0, std::string_view(error.what()).find('\n')));
    }
  }
  // The host writes nothing itself: copies of the step before may still be reading.
  const bool first = !sum.holds;
  in_slices(sum, {.read = !first, .write = true},
            [first](const at::Tensor& total, const at::Tensor& part) { first ? total.copy_(part) : total.add_(part); });
  gradients.zero_();
  sum.holds = true;
  sum.additions = 0;
}

void GradientSums::settle() {
  for (Sum& sum : sums_) {
    if (sum.holds)
      in_slices(sum, {.read = true, .write = false}, [](const at::Tensor& total, const at::Tensor& part) { part.copy_(total.add_(part)); });
    sum.holds = false;
    sum.additions = 0;
  }
}

}  // namespace lockstep::parallel
