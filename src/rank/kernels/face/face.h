// What the tensor faces of kernels share: a tensor's type, stream and table, and promises about shapes.
#pragma once

#include <source_location>
#include <string_view>

#include "base/error.h"
#include "rank/kernels/kernels.h"
#include "rank/kernels/plugin.h"

namespace lockstep::kernels {

inline Type type_of(const at::Tensor& tensor) {
  switch (tensor.scalar_type()) {
    case at::kFloat: return Type::f32;
    case at::kBFloat16: return Type::bf16;
    case at::kHalf: return Type::f16;
    default: throw base::Bug("kernels take f32, bf16 and f16");
  }
}

inline Stream stream_of(const at::Tensor& tensor) {
  return tensor.is_cuda() ? cuda_plugin().current_stream(tensor.device().index()) : nullptr;
}

inline const Table& table_of(const at::Tensor& tensor) { return table_for(tensor.device()); }

inline bool same(const at::Tensor& a, const at::Tensor& b) {
  return a.sizes() == b.sizes() && a.scalar_type() == b.scalar_type() && a.is_contiguous() && b.is_contiguous();
}

inline void expect(bool holds, std::string_view promise, std::source_location where = std::source_location::current()) {
  base::check(holds, promise, where);
}

}  // namespace lockstep::kernels
