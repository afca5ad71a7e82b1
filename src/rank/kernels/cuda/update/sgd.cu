// SGD with momentum on CUDA.
#include "rank/kernels/cuda/update/update.cuh"

namespace lockstep::kernels::cuda {

void update_sgd(const Update& a, Stream stream) { update_by<Rule::sgd>(a, stream); }

}  // namespace lockstep::kernels::cuda
