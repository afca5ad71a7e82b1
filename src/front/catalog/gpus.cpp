// Driver and GPUs: not seen, not usable, slower than they could be.
#include "front/catalog/groups.h"

namespace lockstep::catalog {

std::vector<Entry> about_gpus() {
  return {
      {.code = "LS-201",
       .title = "No NVIDIA driver: CUDA is not available",
       .symptom = "'CUDA not available', torch.cuda.is_available() is False, no GPU is listed, nvidia-smi is not found.",
       .cause = "The kernel driver is not loaded, or this container was started without the GPUs. A toolkit (nvcc) is not a driver.",
       .fix = "install the driver (nvidia-smi must work); in Docker start with --gpus all and the NVIDIA container toolkit; without a GPU "
              "train "
              "with --device cpu",
       .patterns = {"no cuda gpus are available", "found no nvidia driver", "no cuda-capable device is detected", "cuda not available",
                    "cuda is not available", "nvml: driver not loaded", "the nvidia driver does not answer (driver not loaded)",
                    "libcuda.so.1", "nvidia-smi has failed because it couldn't communicate", "could not load dynamic library 'libcuda",
                    "there is no gpu in this machine", "attempting to deserialize object on a cuda device"}},
      {.code = "LS-202",
       .title = "The driver is too old for CUDA 13",
       .symptom = "'CUDA driver version is insufficient for CUDA runtime version', 'The NVIDIA driver on your system is too old'.",
       .cause = "LibTorch here is built for CUDA 13.0, which needs driver 580 or later. `nvidia-smi` shows the newest CUDA a driver runs.",
       .fix = "update the driver to 580 or later",
       .patterns = {"driver version is insufficient", "nvidia driver on your system is too old", "forward compatibility was attempted",
                    "provided ptx was compiled with an unsupported toolchain"}},
      {.code = "LS-203",
       .title = "Driver and its libraries are of different versions",
       .symptom = "'Failed to initialize NVML: Driver/library version mismatch', often right after an update of the system.",
       .cause =
           "The driver's files were updated while the old kernel module is still loaded, or a container brings the libraries of another "
           "driver.",
       .fix = "restart the machine (or unload and load the nvidia modules); restart the container",
       .patterns = {"driver/library version mismatch"}},
      {.code = "LS-204",
       .title = "A GPU does not answer",
       .symptom = "'GPU is lost', 'has fallen off the bus', 'CUDA unknown error', GPUs that were there an hour ago are gone.",
       .cause = "The driver lost the card: a hardware fault, power, heat, or a container whose access to devices was taken away when the "
                "system's services were reloaded.",
       .fix = "`dmesg | grep -i xid` names the reason; restart the container, reset the card with nvidia-smi -r, or restart the machine; "
              "if it "
              "comes back, have the card looked at",
       .patterns = {"gpu is lost", "fallen off the bus", "cuda unknown error", "unable to determine the device handle for gpu", "nvrm: xid",
                    "the nvidia driver does not answer", "failed to initialize nvml", "cuda error: unknown error"}},
      {.code = "LS-205",
       .title = "Only some of the GPUs can be seen",
       .symptom = "Only one GPU is detected or used; 'invalid device ordinal'; 'there is no GPU 3'.",
       .cause = "CUDA_VISIBLE_DEVICES (or a scheduler that sets it, or a container's --gpus) shows this process fewer GPUs than there are. "
                "Ids count among the visible ones, from 0. Some trainers use one GPU unless started by a launcher.",
       .fix = "unset CUDA_VISIBLE_DEVICES, ask the scheduler or Docker for all GPUs, and leave out --gpus and --num-gpus: plain `lockstep "
              "train` uses every GPU it sees",
       .patterns = {"invalid device ordinal", "cuda_visible_devices hides", "are hidden by cuda_visible_devices",
                    "--gpus *: there is no gpu", "can be used. gpus there are", "unsloth currently does not * multi gpu",
                    "does not support multi gpu"}},
      {.code = "LS-206",
       .title = "A GPU is in use by another program",
       .symptom =
           "Out of memory at the start though the model is small; 'all CUDA-capable devices are busy or unavailable'; half the speed.",
       .cause = "Another process holds memory of the GPU or computes on it, or it is set to exclusive use.",
       .fix = "`nvidia-smi` lists the processes: end those that are left over, or choose free GPUs with --gpus; nvidia-smi -c 0 allows "
              "several",
       .patterns = {"devices are busy or unavailable", "cuda error: device(s) is/are busy", "exclusive-thread or exclusive-process"}},
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
       .patterns = {"peer access is not supported", "p2p is disabled", "nccl warn p2p", "transport/p2p.cc"}},
      {.code = "LS-211",
       .title = "A GPU's memory has errors",
       .symptom = "'uncorrectable ECC error encountered', numbers that are not finite on one rank only.",
       .cause = "The card's memory gave wrong bits that could not be repaired.",
       .fix = "restart the machine so that the driver sets bad rows aside; if errors come back, have the card replaced",
       .patterns = {"uncorrectable ecc error", "ecc error", "xid * 48", "xid * 94", "xid * 95"}},
      {.code = "LS-212",
       .title = "The GPU is too old for these kernels",
       .symptom = "'no kernel image is available for execution on the device', 'sm_61 is not compatible'.",
       .cause = "Kernels are compiled for Turing (compute capability 7.5) and later, as those of LibTorch for CUDA 13 are.",
       .fix = "use a newer GPU, or train with --device cpu",
       .patterns = {"no kernel image is available", "is not compatible with the current pytorch installation", "cannot: it takes an h100"}},
      {.code = "LS-213",
       .title = "A kernel failed on the GPU",
       .symptom = "'an illegal memory access was encountered', 'device-side assert triggered', 'unspecified launch failure'.",
       .cause = "A kernel read or wrote what is not its own: a token id beyond the vocabulary, a bug, or failing hardware. The line that "
                "reports "
                "it comes later than the kernel.",
       .fix = "CUDA_LAUNCH_BLOCKING=1 shows the kernel that failed",
       .patterns = {"illegal memory access", "device-side assert", "unspecified launch failure", "cublas_status_execution_failed",
                    "cudnn_status_execution_failed", "misaligned address"}},
      {.code = "LS-214",
       .title = "AMD GPUs: this build has no ROCm part",
       .symptom = "The machine has AMD GPUs and training runs on the CPU; 'HIP error', 'hipErrorNoBinaryForGpu'.",
       .cause = "Kernels and collectives here are written for CUDA and NCCL.",
       .fix = "train on NVIDIA GPUs, or with --device cpu",
       .patterns = {"hip error", "hiperror", "rocm is not", "no hip gpus are available"}},
  };
}

}  // namespace lockstep::catalog
