// Sums in f32 behind gradients of 16 bits. A type of 8 bits' precision loses what is added to a sum more than 256 times as large, so
// gradients are flushed into f32 before they have been added to too often.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "layout/memory/step_memory.h"
#include "rank/model/weights/store.h"

namespace lockstep::parallel {

// One thread, the device's current stream. Gradients stay where they are.
class GradientSums {
 public:
  static constexpr std::int64_t kMostAdditions = layout::most_additions;

  // room_bytes: what sums may take of the device's memory; those of the slices that come first in the list go there first, the others to
  // the host. Memory is taken when a unit is first flushed.
  GradientSums(const model::Store& store, std::vector<model::HeldSlice> slices, std::int64_t room_bytes);

  // Whether all of them have their place on the device.
  bool on_device() const;

  // Before a micro-step: flushes the units for which another one might be too much.
  void make_way();
  // After a micro-step that added `additions` times to the gradients of the unit `often`, and once to those of the others.
  void added(std::optional<std::size_t> often, std::int64_t additions);
  // What was flushed comes back: gradients are the whole sums, each rounded once, and all counts begin anew.
  void settle();

 private:
  struct Sum {
    model::HeldSlice slice;
    bool on_host;
    at::Tensor total = {};       // [elements] f32, pinned where it is on the host; undefined until the first flush
    std::int64_t additions = 0;  // since it was last flushed
    std::int64_t most = 1;       // of any micro-step so far
    bool holds = false;          // something that gradients have not
  };
  void flush(Sum& sum);
  // body(total, gradients): f32 on the device, and the same stretch of the gradients. Where the total is the host's, body has a copy of it.
  struct Copies {
    bool read, write;
  };
  template <typename Body>
  void in_slices(Sum& sum, Copies copies, Body body);

  const model::Store& store_;
  std::vector<Sum> sums_;
  at::Tensor slice_;  // f32 on the device: where numbers of the host are added
};

}  // namespace lockstep::parallel
