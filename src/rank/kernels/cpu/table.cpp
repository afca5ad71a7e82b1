// The table of one instruction set.
#include "rank/kernels/cpu/ops.h"

namespace lockstep::kernels::LOCKSTEP_ISA {

const Table& table() {
  static constexpr Table table{.partial_rows = kCpuPartialRows, LOCKSTEP_OPS(LOCKSTEP_LIST_OP)};
  return table;
}

}  // namespace lockstep::kernels::LOCKSTEP_ISA
