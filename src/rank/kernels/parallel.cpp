// Threads for the CPU loops: LibTorch's own pool, so that matmuls and loops never compete.
#include <ATen/Parallel.h>

#include "rank/kernels/cpu/cpu.h"

namespace lockstep::kernels {

void parallel_ranges(std::int64_t count, std::int64_t grain, void* context, void (*body)(void*, std::int64_t, std::int64_t)) {
  if (count <= 0) return;
  if (at::get_num_threads() == 1 || count <= grain) return body(context, 0, count);
  at::parallel_for(0, count, grain, [&](std::int64_t begin, std::int64_t end) { body(context, begin, end); });
}

}  // namespace lockstep::kernels
