// Fills a buffer with normal numbers on a CPU.
#include "rank/kernels/cpu/ops.h"
#include "rank/kernels/rules/normal.h"

namespace lockstep::kernels::LOCKSTEP_ISA {

void random_normal(const RandomNormal& a, Stream) {
  const std::int64_t first_group = a.first / 4, groups = (a.first + a.count + 3) / 4 - first_group;
  parallel(groups, 1024, [&](std::int64_t begin, std::int64_t end) {
    for (auto g = begin; g < end; ++g) {
      const auto four = normal_group(a.key, std::uint64_t(first_group + g));
      for (std::int64_t lane = 0; lane < 4; ++lane) {
        const auto i = (first_group + g) * 4 + lane - a.first;
        if (i >= 0 && i < a.count) a.out[i] = four.value[lane] * a.std;
      }
    }
  });
}

}  // namespace lockstep::kernels::LOCKSTEP_ISA
