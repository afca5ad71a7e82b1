// Activations kept from step to step: a buffer is made when its shape changes and reused otherwise.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include <cstdint>
#include <set>

namespace lockstep::model {

inline const at::Tensor& fit(at::Tensor& buffer, at::IntArrayRef sizes, const at::TensorOptions& options) {
  if (!buffer.defined() || buffer.sizes() != sizes || buffer.scalar_type() != options.dtype().toScalarType())
    buffer = at::empty(sizes, options);
  return buffer;
}

// Bytes of the memory behind tensors, each piece of it once.
class HeldMemory {
 public:
  void add(const at::Tensor& tensor) {
    if (tensor.defined() && seen_.insert(tensor.storage().unsafeGetStorageImpl()).second) bytes_ += std::int64_t(tensor.storage().nbytes());
  }
  std::int64_t bytes() const { return bytes_; }

 private:
  std::set<const void*> seen_;
  std::int64_t bytes_ = 0;
};

}  // namespace lockstep::model
