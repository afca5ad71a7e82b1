// Measures the two ceilings with LibTorch's own copy and matrix product: neither is code of ours.
#include "rank/bench/ceilings.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include "rank/bench/timing.h"

namespace lockstep::bench {

Ceilings measure_ceilings(at::Device device, at::ScalarType dtype) {
  Ceilings ceilings;
  // Far larger than any cache; small enough for a laptop.
  ceilings.copy_bytes = device.is_cuda() ? std::int64_t(1) << 30 : std::int64_t(128) << 20;
  {
    const auto from = at::zeros({ceilings.copy_bytes / 4}, at::TensorOptions().device(device).dtype(at::kFloat));
    const auto to = at::zeros_like(from);
    const double seconds = time_short(device, [&] { to.copy_(from); }).min;
    ceilings.bytes_per_second = 2 * static_cast<double>(ceilings.copy_bytes) / seconds;
  }
  ceilings.matmul_size = device.is_cuda() ? 8192 : 1024;
  const std::int64_t n = ceilings.matmul_size;
  // Normal numbers, not zeros: a GPU's clock depends on how many bits flip.
  const auto options = at::TensorOptions().device(device).dtype(dtype);
  const auto a = at::randn({n, n}, options), b = at::randn({n, n}, options);
  auto out = at::empty({n, n}, options);
  const double seconds = time_short(device, [&] { at::mm_out(out, a, b); }, /*group_seconds=*/0.1).min;
  ceilings.flops_per_second = 2.0 * static_cast<double>(n) * static_cast<double>(n) * static_cast<double>(n) / seconds;
  return ceilings;
}

}  // namespace lockstep::bench
