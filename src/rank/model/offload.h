// Block inputs that wait in host memory between forward and backward: copied out and back beside compute, through two device buffers.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Event.h>
#include <c10/core/Stream.h>

#include <optional>
#include <vector>

#include "layout/memory/memory.h"

namespace lockstep::model {

// One thread. Work is on the device's current stream and on a stream of its own for copies.
// A step calls, for entries 0, 1, 2, ... in order: take(i), then store(i); and then fetch(i) in the opposite order.
class Offload {
 public:
  explicit Offload(at::Device device);

  // A device buffer for entry i, undefined the first time: what was in it before has left.
  at::Tensor take(std::size_t i);
  // Entry i is written (on the current stream): starts its way to the host. count: how many entries this step has.
  void store(std::size_t i, const at::Tensor& entry, std::size_t count);
  // Entry i on the device again. Starts bringing earlier entries back.
  const at::Tensor& fetch(std::size_t i);

 private:
  static constexpr std::size_t kBuffers = layout::offload_buffers;
  struct Slot {
    at::Tensor buffer;
    std::optional<c10::Event> free;   // on the copy stream: the last entry has left
    std::optional<c10::Event> ready;  // on the copy stream: an entry has come back
    std::optional<std::size_t> holds;
  };
  Slot& slot(std::size_t i) { return slots_[i % kBuffers]; }
  void bring_back(std::size_t i);
  c10::Stream compute() const;
  c10::Event recorded(const c10::Stream& stream) const;

  at::Device device_;
  c10::Stream copies_;
  std::vector<Slot> slots_;
  std::vector<at::Tensor> host_;  // pinned
};

}  // namespace lockstep::model
