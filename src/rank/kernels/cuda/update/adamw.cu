// AdamW on CUDA.
#include "rank/kernels/cuda/update/update.cuh"

namespace lockstep::kernels::cuda {

void update_adamw(const Update& a, Stream stream) { update_by<Rule::adamw>(a, stream); }

}  // namespace lockstep::kernels::cuda
