// Heads as attention over whole batches takes them, and as attention over packed records does. Views where memory allows.
#pragma once

#include <ATen/core/Tensor.h>

namespace lockstep::model {

// [batch, heads, time, head_dim] -> [rows, heads, head_dim]
inline at::Tensor as_rows(const at::Tensor& heads) {
  return heads.transpose(1, 2).reshape({heads.size(0) * heads.size(2), heads.size(1), heads.size(3)});
}
// and back
inline at::Tensor as_batch(const at::Tensor& rows, std::int64_t batch) {
  return rows.view({batch, rows.size(0) / batch, rows.size(1), rows.size(2)}).transpose(1, 2);
}

}  // namespace lockstep::model
