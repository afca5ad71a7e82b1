// Sum of rows on a CPU, each number by itself.
#include "rank/kernels/cpu/ops.h"

namespace lockstep::kernels::LOCKSTEP_ISA {

void sum_of_rows(const SumOfRows& a, Stream) {
  by_type(a.type, [&]<typename T>(T) {
    by_type(a.out_type, [&]<typename Out>(Out) {
      const auto* rows = static_cast<const T*>(a.rows);
      auto* out = static_cast<Out*>(a.out);
      parallel(a.width, 32768, [&](std::int64_t begin, std::int64_t end) {
        for (auto i = begin; i < end; ++i) {
          float sum = load(rows[i]);
          for (std::int64_t row = 1; row < a.count_of_rows; ++row) sum += load(rows[row * a.width + i]);
          store(out[i], sum);
        }
      });
    });
  });
}

}  // namespace lockstep::kernels::LOCKSTEP_ISA
