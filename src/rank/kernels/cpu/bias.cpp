// Gradient of a bias on a CPU: column sums.
#include "rank/kernels/cpu/ops.h"

namespace lockstep::kernels::LOCKSTEP_ISA {

void bias_backward(const BiasBackward& a, Stream) {
  const std::int64_t slices = a.rows < kCpuPartialRows ? a.rows : kCpuPartialRows;
  by_type(a.type, [&]<typename T>(T) {
    parallel(slices, 1, [&](std::int64_t begin, std::int64_t end) {
      for (auto s = begin; s < end; ++s) {
        float* __restrict sum = a.partials + s * a.width;
        for (std::int64_t i = 0; i < a.width; ++i) sum[i] = 0;
        for (auto row = a.rows * s / slices; row < a.rows * (s + 1) / slices; ++row) {
          const auto* dout = static_cast<const T*>(a.dout) + row * a.width;
#pragma omp simd
          for (std::int64_t i = 0; i < a.width; ++i) sum[i] += load(dout[i]);
        }
      }
    });
  });
  add_partials(a.partials, slices, a.width, a.dbias, a.gradient_type);
}

}  // namespace lockstep::kernels::LOCKSTEP_ISA
