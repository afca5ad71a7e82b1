// Buffers that layers and flights share, because one at a time needs them.
#pragma once

#include <memory>

#include "rank/model/flight.h"
#include "rank/model/projection/projection.h"

namespace lockstep::model {

// The head's, of one micro-batch at a time.
struct HeadWork {
  at::Tensor rstd = {}, losses = {}, correct = {};  // [rows] each
  std::int64_t additions = 0;                       // to the gradient of the output matrix, in the last backward
  std::int64_t logits_bytes = 0;                    // of the last chunk
};

struct Workspace {
  std::unique_ptr<LayerKept> kept = {};  // what a policy does not keep, but for the norms; of the layers' own kind
  at::Tensor norm = {};                  // [rows, hidden] a norm's output, of one at a time
  at::Tensor hidden = {};             // [rows, hidden] forward: what a branch adds to the stream; backward: the gradient at a norm's output
  at::Tensor dmixed = {}, dqkv = {};  // [rows, q_width], [rows, qkv_width]; only where a part leaves no room for them
  ProjectionScratch projection = {};
  HeadWork head = {};
};

}  // namespace lockstep::model
