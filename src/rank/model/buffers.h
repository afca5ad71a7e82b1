// Activations kept from step to step: a buffer is made when its shape changes and reused otherwise.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

namespace lockstep::model {

inline const at::Tensor& fit(at::Tensor& buffer, at::IntArrayRef sizes, const at::TensorOptions& options) {
  if (!buffer.defined() || buffer.sizes() != sizes || buffer.scalar_type() != options.dtype().toScalarType())
    buffer = at::empty(sizes, options);
  return buffer;
}

}  // namespace lockstep::model
