// Judges a step on CUDA: one thread, so that nobody waits for the host.
#include "rank/kernels/cuda/cuda.cuh"
#include "rank/kernels/rules/decide.h"

namespace lockstep::kernels::cuda {

namespace {

__global__ void judge(FinishGradients a) { decide(a, sqrt(*a.sum_of_squares)); }

}  // namespace

void finish_gradients(const FinishGradients& a, Stream stream) {
  judge<<<1, 1, 0, native(stream)>>>(a);
  launched("finish_gradients");
}

}  // namespace lockstep::kernels::cuda
