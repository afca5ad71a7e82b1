// A point in time on the device's own clock: how long the device took, read without making it wait.
#pragma once

#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <cstdint>
#include <memory>

#include "base/clock.h"

namespace lockstep::train {

// A moment in the device's work, or of the host's clock where the device is the host.
class Moment {
 public:
  Moment() = default;
  explicit Moment(at::Device device) : host_ns_(base::now_ns()) {
    if (device.is_cpu()) return;
    event_ = std::make_shared<c10::Event>(device.type(), c10::EventFlag::BACKEND_DEFAULT);
    event_->record(c10::impl::VirtualGuardImpl(device.type()).getStream(device));
  }
  void wait() const {
    if (event_) event_->synchronize();
  }
  // Both must have been reached: wait() for the later one first.
  double seconds_since(const Moment& earlier) const {
    if (event_) return earlier.event_->elapsedTime(*event_) * 1e-3;
    return static_cast<double>(host_ns_ - earlier.host_ns_) * 1e-9;
  }

 private:
  std::int64_t host_ns_ = 0;
  std::shared_ptr<c10::Event> event_;
};

}  // namespace lockstep::train
