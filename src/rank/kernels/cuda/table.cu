// The table of CUDA kernels.
#include "rank/kernels/cuda/cuda.cuh"

namespace lockstep::kernels::cuda {

const Table& table() {
  static constexpr Table table{
      .partial_rows = kPartialRows,
      LOCKSTEP_OPS(LOCKSTEP_LIST_OP).matmul = matmul,
      .gate_up_swiglu = gate_up_swiglu,
      .down_backward_swiglu = down_backward_swiglu,
  };
  return table;
}

}  // namespace lockstep::kernels::cuda
