// GPUs that are seen, and fail or are slower than they could be.
#include "front/catalog/groups.h"

namespace lockstep::catalog {

std::vector<Entry> about_gpus() {
  return {
      {.code = "LS-207",
       .title = "A GPU is slowed down",
       .symptom = "One GPU is slower than the others, clocks are low under load, throughput falls after minutes.",
       .cause = "It is too hot, at its power limit, or its power supply holds it back. In lockstep all wait for the slowest.",
       .fix = "look after cooling and power; nvidia-smi -q -d PERFORMANCE shows the reasons, nvidia-smi -pl the power limit",
       .patterns = {"sw thermal slowdown", "hw thermal slowdown", "hw power brake slowdown"}},
      {.code = "LS-208",
       .title = "A GPU has fewer PCIe lanes than it could",
       .symptom = "Training scales badly between GPUs without NVLink; loading and offloading are slow.",
       .cause = "The card is in a slot with fewer lanes, shares them with another card or a disk, or is not well seated.",
       .fix = "put it into a slot with all lanes; `nvidia-smi -q -d PCIE` and the board's manual tell which"},
      {.code = "LS-209",
       .title = "The GPUs are not of one kind",
       .symptom = "Some GPUs idle while others work; out of memory on the smallest only.",
       .cause = "Every rank gets the same share of a batch, so the slowest GPU sets the pace and the smallest the batch.",
       .fix = "choose equal ones with --gpus, or accept the pace of the slowest"},
      {.code = "LS-210",
       .title = "GPUs cannot reach each other's memory",
       .symptom = "NCCL is slow or hangs at its first collective; 'peer access is not supported'.",
       .cause = "Peer access is off: consumer cards without it, virtual machines, an IOMMU or access control (ACS) between slots. NCCL "
                "then goes "
                "through host memory.",
       .fix = "it works, slower; switch ACS off in the BIOS if it hangs, or set NCCL_P2P_DISABLE=1; --sync-backend cpu goes without NCCL",
       .patterns = {"peer access is not supported", "p2p is disabled", "nccl warn p2p", "failed to get cuda ipc handle"}},
      {.code = "LS-211",
       .title = "A GPU's memory has errors",
       .symptom = "'uncorrectable ECC error encountered', numbers that are not finite on one rank only.",
       .cause = "The card's memory gave wrong bits that could not be repaired.",
       .fix = "restart the machine so that the driver sets bad rows aside; if errors come back, have the card replaced",
       .patterns = {"uncorrectable ecc error", "ecc error", "xid (*): 48,", "xid (*): 94,", "xid (*): 95,", "double bit error"}},
      {.code = "LS-212",
       .title = "The kernels were not compiled for this GPU",
       .symptom =
           "'no kernel image is available for execution on the device', 'sm_61 is not compatible', 'device kernel image is invalid'.",
       .cause = "A GPU runs what was compiled for its compute capability. Here that is Ampere (8.0) and later, Blackwell (12.0) too; a "
                "PyTorch that is older than the GPU knows nothing of it.",
       .fix = "for an older GPU than Ampere use a newer one, or --device cpu; a GPU that is newer than another trainer's PyTorch needs a "
              "newer "
              "PyTorch there",
       .patterns = {"no kernel image is available", "is not compatible with the current pytorch installation", "cannot: it takes an h100",
                    "doesn't support bf16/gpu", "only supports ampere gpus", "unsupported gpu architecture",
                    "device kernel image is invalid", "is not defined for option 'gpu-name'"}},
      {.code = "LS-213",
       .title = "A kernel failed on the GPU",
       .symptom = "'an illegal memory access was encountered', 'device-side assert triggered', 'unspecified launch failure'.",
       .cause = "A kernel read or wrote what is not its own: a token id beyond the vocabulary, a bug, or failing hardware. The line that "
                "reports "
                "it comes later than the kernel.",
       .fix = "CUDA_LAUNCH_BLOCKING=1 shows the kernel that failed",
       .patterns = {"illegal memory access", "device-side assert", "unspecified launch failure", "cublas_status_execution_failed",
                    "cudnn_status_execution_failed", "misaligned address", "srcindex < srcselectdimsize",
                    "illegal instruction was encountered", "xid (*): 13,", "xid (*): 31,", "cudnn_status_internal_error"}},
      {.code = "LS-216",
       .title = "NVLink has errors",
       .symptom = "'uncorrectable NVLink error', 'Xid ... 74, NVLink: fatal error detected'.",
       .cause = "A link between GPUs, or to a switch, lost data that could not be repaired.",
       .fix = "`nvidia-smi nvlink -e` names the link; restart the machine, and have the card or the bridge looked at if it comes back",
       .patterns = {"nvlink error", "xid (*): 74,", "nvlink: fatal error"}},
  };
}

}  // namespace lockstep::catalog
