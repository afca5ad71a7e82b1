// Stands in for the CUDA plug-in in builds without it.
#include "base/error.h"
#include "rank/kernels/plugin.h"

namespace lockstep::kernels {

const CudaPlugin& cuda_plugin() {
  throw base::machine_error(
      "kernels", "this build has no CUDA part (it was made with CUDA=0). Build again with `make build`, or train with --device cpu.");
}

bool built_with_cuda() { return false; }

}  // namespace lockstep::kernels
