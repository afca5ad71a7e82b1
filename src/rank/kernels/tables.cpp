// Picks the kernels of a device: for a CPU those of the widest instruction set it has.
#include <array>
#include <cstdlib>
#include <string_view>

#include "base/error.h"
#include "rank/kernels/broken_tiles.h"
#include "rank/kernels/cpu_kernels.h"
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

struct CpuTable {
  std::string_view name;
  bool there;
  const Table& (*table)();
};

// The widest instruction set first.
std::array<CpuTable, 3> cpu_tables() {
  __builtin_cpu_init();
  const bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
                      __builtin_cpu_supports("avx512dq");
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c");
  return {{{"avx512", avx512, avx512::table}, {"avx2", avx2, avx2::table}, {"plain", true, plain::table}}};
}

const CpuTable& chosen_cpu_table() {
  static const CpuTable chosen = [] {
    const char* asked = std::getenv("LOCKSTEP_CPU_KERNELS");  // plain | avx2 | avx512: for tests that compare them
    for (const CpuTable& one : cpu_tables()) {
      if (one.there && (asked == nullptr || one.name == asked)) return one;
    }
    throw base::machine_error(
        "kernels", "LOCKSTEP_CPU_KERNELS={}: this CPU has no such kernels. Leave the variable out to get the best it has.", asked);
  }();
  return chosen;
}

}  // namespace

const Table& table_for(const at::Device& device) {
  if (device.is_cuda()) return *cuda_plugin().table;
  base::check(device.is_cpu(), "kernels run on a CPU or on CUDA");
  static const Table& best = chosen_cpu_table().table();
  return best;
}

std::string_view cpu_kernels() { return chosen_cpu_table().name; }

}  // namespace lockstep::kernels
