// What tests of update kernels share.
#pragma once

#include <ATen/ops/equal.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/randn.h>

#include "rank/kernels/kernels.h"
#include "support/reference/test_device.h"

namespace lockstep::kernels {

inline at::Tensor random_numbers(std::int64_t count, int seed, at::ScalarType type = at::kFloat) {
  return at::randn({count}, test::generator(seed)).to(type);
}

inline at::Tensor on_device(Control control) { return at::from_blob(&control, {kControlNumbers}, at::kDouble).clone().to(test::device()); }

inline bool same_bits(const at::Tensor& a, const at::Tensor& b) {
  return a.scalar_type() == b.scalar_type() && at::equal(a.cpu().contiguous().view(at::kByte), b.cpu().contiguous().view(at::kByte));
}

}  // namespace lockstep::kernels
