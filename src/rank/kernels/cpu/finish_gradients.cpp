// Judges a step on a CPU.
#include "rank/kernels/cpu/ops.h"
#include "rank/kernels/rules/decide.h"

namespace lockstep::kernels::LOCKSTEP_ISA {

void finish_gradients(const FinishGradients& a, Stream) { decide(a, std::sqrt(*a.sum_of_squares)); }

}  // namespace lockstep::kernels::LOCKSTEP_ISA
