// What one micro-batch leaves behind between its forward and its backward. Layers are const and keep nothing themselves, so that several
// micro-batches can be on their way at once.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <optional>
#include <vector>

#include "rank/kernels/kernels.h"
#include "rank/model/projection/adapter.h"
#include "rank/model/parts/attention.h"
#include "rank/model/buffers.h"
#include "rank/model/offload.h"
#include "rank/model/weights/store.h"

namespace lockstep::model {

struct Workspace;

// The residual stream between layers: x = residual + delta. The sum is made by the next norm, which reads both anyway.
struct ResidualStream {
  at::Tensor residual;  // [rows, hidden]
  at::Tensor delta;     // [rows, hidden], undefined after the embedding
};

// What a layer keeps of one micro-batch.
class LayerKept {
 public:
  virtual ~LayerKept() = default;
  // The stream at the layer's start, which may wait in host memory meanwhile.
  virtual at::Tensor& input() = 0;
  virtual void add_to(HeldMemory& memory) const = 0;
};

struct Flight {
  Micro micro = {};
  at::Tensor tokens = {}, targets = {};  // [batch, time] i64
  std::int64_t time = 0;                 // tokens per sample
  at::Tensor positions = {};             // [rows] i32 where records are packed; undefined: row % time
  Segments segments = {};                // where packed records start
  Dropout dropout = {};
  kernels::RotaryTable rotary = {};
  Workspace* work = nullptr;  // buffers that all flights share, because one layer at a time needs them

  at::Tensor embedded = {};                             // [rows, hidden]
  std::vector<std::unique_ptr<LayerKept>> layers = {};  // by layer
  ResidualStream end = {};                              // behind the last layer
  ResidualStream parked = {};                           // where that waits while another flight uses the shared buffers
  std::optional<Offload> offload = {};                  // of layers' inputs
  std::size_t offloaded = 0;                            // inputs that are away
};

}  // namespace lockstep::model
