// What goes from layer to layer, and from stage to stage: streams and a condition, and their gradients on the way back.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

namespace lockstep::model {

// A residual stream between layers: x = residual + delta. The sum is made by the next norm, which reads both anyway.
struct ResidualStream {
  at::Tensor residual;  // [rows, hidden]
  at::Tensor delta;     // [rows, hidden], undefined where the residual is all of it
};

// Streams: one for text, two for image and text. The condition is what every layer is told besides; layers leave it as it is.
struct Border {
  std::vector<ResidualStream> streams = {};
  at::Tensor condition = {};  // undefined: none
};

struct BorderGradient {
  std::vector<at::Tensor> streams = {};  // [rows, hidden] each: layers turn that of what is behind them into that of what is before
  at::Tensor condition = {};             // layers add to it; undefined where nobody asks for it
};

}  // namespace lockstep::model
