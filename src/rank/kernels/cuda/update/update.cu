// Which rule's kernel an update runs on CUDA.
#include "rank/kernels/cuda/update/update.cuh"

namespace lockstep::kernels::cuda {

void update(const Update& a, Stream stream) {
  switch (a.rule) {
    case Rule::adamw: return update_adamw(a, stream);
    case Rule::lion: return update_lion(a, stream);
    case Rule::sgd: return update_sgd(a, stream);
    case Rule::apply: return update_apply(a, stream);
  }
}

}  // namespace lockstep::kernels::cuda
