// What one micro-batch leaves behind between its forward and its backward. Layers are const and keep nothing themselves, so that several
// micro-batches can be on their way at once.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <vector>

#include "rank/kernels/kernels.h"
#include "rank/model/projection/adapter.h"
#include "rank/model/parts/attention.h"
#include "rank/model/border.h"
#include "rank/model/buffers.h"
#include "rank/model/offload.h"
#include "rank/model/weights/store.h"

namespace lockstep::model {

struct Workspace;

// What a layer keeps of one micro-batch.
class LayerKept {
 public:
  virtual ~LayerKept() = default;
  // A stream at the layer's start, which may wait in host memory meanwhile.
  virtual at::Tensor& input(std::size_t stream) = 0;
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

  Border border = {};                                   // before forward what comes in, then what goes out
  at::Tensor embedded = {};                             // [rows, hidden]
  std::vector<std::unique_ptr<LayerKept>> layers = {};  // by layer of the stage
  std::vector<ResidualStream> parked = {};              // where what goes out waits while others use the buffers that it was made in
  std::vector<Offload> offload = {};                    // of layers' inputs, by stream
  std::size_t offloaded = 0;                            // layers whose inputs are away
};

}  // namespace lockstep::model
