// Updates that were made elsewhere, taken off the weights on CUDA.
#include "rank/kernels/cuda/update/update.cuh"

namespace lockstep::kernels::cuda {

void update_apply(const Update& a, Stream stream) { update_by<Rule::apply>(a, stream); }

}  // namespace lockstep::kernels::cuda
