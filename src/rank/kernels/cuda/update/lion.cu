// Lion on CUDA.
#include "rank/kernels/cuda/update/update.cuh"

namespace lockstep::kernels::cuda {

void update_lion(const Update& a, Stream stream) { update_by<Rule::lion>(a, stream); }

}  // namespace lockstep::kernels::cuda
