// Dropout on a CPU: which elements fall follows from keys alone.
#include "rank/kernels/cpu/ops.h"
#include "rank/kernels/rules/dropout.h"

namespace lockstep::kernels::LOCKSTEP_ISA {

void dropout(const Dropout& a, Stream) {
  const float scale = 1.0f / (1.0f - a.share);
  const auto threshold = std::uint32_t(double(a.share) * 4294967296.0);
  by_type(a.type, [&]<typename T>(T) {
    parallel(a.rows, grain_rows(a.width), [&](std::int64_t begin, std::int64_t end) {
      for (auto row = begin; row < end; ++row) {
        const auto key = dropout_row_key(std::uint64_t(a.keys[row / a.time]), a.site, row % a.time);
        const auto* in = static_cast<const T*>(a.in) + row * a.width;
        auto* out = static_cast<T*>(a.out) + row * a.width;
        for (std::int64_t i = 0; i < a.width; ++i) store(out[i], keeps(key, i, threshold) ? load(in[i]) * scale : 0.0f);
      }
    });
  });
}

}  // namespace lockstep::kernels::LOCKSTEP_ISA
