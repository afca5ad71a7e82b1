// The way of block inputs to host memory and back.
#include "rank/model/offload.h"

#include <ATen/ops/empty.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include "base/error.h"

namespace lockstep::model {

Offload::Offload(at::Device device)
    : device_(device), copies_(c10::impl::VirtualGuardImpl(device.type()).getStreamFromGlobalPool(device, false)), slots_(kBuffers) {}

c10::Stream Offload::compute() const { return c10::impl::VirtualGuardImpl(device_.type()).getStream(device_); }

c10::Event Offload::recorded(const c10::Stream& stream) const {
  c10::Event event(device_.type());
  event.record(stream);
  return event;
}

at::Tensor Offload::take(std::size_t i) {
  Slot& place = slot(i);
  if (place.free) place.free->block(compute());
  place.holds.reset();
  return place.buffer;
}

void Offload::store(std::size_t i, const at::Tensor& entry, std::size_t count) {
  Slot& place = slot(i);
  place.buffer = entry;
  place.holds = i;
  place.ready.reset();
  if (i + kBuffers >= count) return;  // backward wants these first: they stay
  if (host_.size() <= i) host_.resize(i + 1);
  if (!host_[i].defined() || host_[i].sizes() != place.buffer.sizes() || host_[i].scalar_type() != place.buffer.scalar_type())
    host_[i] = at::empty(place.buffer.sizes(), place.buffer.options().device(at::kCPU).pinned_memory(true));
  recorded(compute()).block(copies_);
  const c10::StreamGuard on_copies(copies_);
  host_[i].copy_(place.buffer, /*non_blocking=*/true);
  place.free.emplace(recorded(copies_));
}

void Offload::bring_back(std::size_t i) {
  Slot& place = slot(i);
  if (place.holds == i) return;
  recorded(compute()).block(copies_);  // backward is done with what the buffer holds now
  const c10::StreamGuard on_copies(copies_);
  place.buffer.copy_(host_[i], /*non_blocking=*/true);
  place.ready.emplace(recorded(copies_));
  place.holds = i;
}

const at::Tensor& Offload::fetch(std::size_t i) {
  bring_back(i);
  // The buffer of entry i + 1 is free as of now: its backward is queued.
  if (i + 1 >= kBuffers) bring_back(i + 1 - kBuffers);
  Slot& place = slot(i);
  if (place.ready) place.ready->block(compute());
  base::check(place.holds == i, "an offloaded entry is fetched in the opposite order of storing");
  return place.buffer;
}

}  // namespace lockstep::model
