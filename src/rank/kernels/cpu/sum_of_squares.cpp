// Sum of squares of a flat buffer on a CPU, in blocks whose size never changes.
#include "rank/kernels/cpu/ops.h"

namespace lockstep::kernels::LOCKSTEP_ISA {

void sum_of_squares(const SumOfSquares& a, Stream) {
  by_type(a.type, [&]<typename T>(T) {
    parallel(square_blocks(a.count), 1, [&](std::int64_t begin, std::int64_t end) {
      for (auto p = begin; p < end; ++p) {
        const auto* values = static_cast<const T*>(a.values);
        const auto first = p * kSquareBlock, last = first + kSquareBlock < a.count ? first + kSquareBlock : a.count;
        double whole = 0;
        for (auto from = first; from < last; from += 512) {  // by stretches, so that a sum of one is the same wherever a unit is cut
          const auto to = from + 512 < last ? from + 512 : last;
          double sum = 0;
#pragma omp simd reduction(+ : sum)
          for (auto i = from; i < to; ++i) sum += double(load(values[i])) * double(load(values[i]));
          whole += sum;
        }
        a.partials[p] = whole;
      }
    });
  });
}

}  // namespace lockstep::kernels::LOCKSTEP_ISA
