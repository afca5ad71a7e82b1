// Picks the kernels of a device: for a CPU those of the widest instruction set it has.
#include <cstdlib>
#include <string_view>

#include "base/error.h"
#include "rank/kernels/broken_tiles.h"
#include "rank/kernels/kernels.h"
#include "rank/kernels/plugin.h"

namespace lockstep::kernels {

namespace plain {
const Table& table();
}
namespace avx2 {
const Table& table();
}
namespace avx512 {
const Table& table();
}

namespace {

// Before main(), in every program that computes: later there may be threads, or a product that has ended it.
[[maybe_unused]] const bool tiles_tried = (avoid_broken_tiles(), true);

const Table& best_cpu_table() {
  __builtin_cpu_init();
  const char* asked = std::getenv("LOCKSTEP_CPU_KERNELS");  // plain | avx2 | avx512: for tests that compare them
  const auto allowed = [&](std::string_view name) { return asked == nullptr || name == asked; };
  if (allowed("avx512") && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
      __builtin_cpu_supports("avx512dq"))
    return avx512::table();
  if ((allowed("avx2") || allowed("avx512")) && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
      __builtin_cpu_supports("f16c"))
    return avx2::table();
  return plain::table();
}

}  // namespace

const Table& table_for(const at::Device& device) {
  if (device.is_cuda()) return *cuda_plugin().table;
  base::check(device.is_cpu(), "kernels run on a CPU or on CUDA");
  static const Table& best = best_cpu_table();
  return best;
}

}  // namespace lockstep::kernels
