// Driver and GPUs that are not seen.
#include "front/catalog/groups.h"

namespace lockstep::catalog {

std::vector<Entry> about_drivers() {
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
                    "there is no gpu in this machine", "attempting to deserialize object on a cuda device",
                    "libcuda.so.1: cannot open shared object file", "nvidia-smi: command not found", "could not select device driver",
                    "nvidia-container-cli: initialization error", "cannot find any torch accelerator",
                    "libnvidia-ml.so.1: cannot open shared object file"}},
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
                    "does not support multi gpu", "attempting to deserialize object on cuda device"}},
      {.code = "LS-206",
       .title = "A GPU is in use by another program",
       .symptom =
           "Out of memory at the start though the model is small; 'all CUDA-capable devices are busy or unavailable'; half the speed.",
       .cause = "Another process holds memory of the GPU or computes on it, or it is set to exclusive use.",
       .fix = "`nvidia-smi` lists the processes: end those that are left over, or choose free GPUs with --gpus; nvidia-smi -c 0 allows "
              "several",
       .patterns = {"devices are busy or unavailable", "cuda error: device(s) is/are busy", "exclusive-thread or exclusive-process"}},
      {.code = "LS-214",
       .title = "AMD GPUs: this build has no ROCm part",
       .symptom = "The machine has AMD GPUs and training runs on the CPU; 'HIP error', 'hipErrorNoBinaryForGpu'.",
       .cause = "Kernels and collectives here are written for CUDA and NCCL.",
       .fix = "train on NVIDIA GPUs, or with --device cpu",
       .patterns = {"hip error", "hiperror", "rocm is not", "no hip gpus are available"}},
      {.code = "LS-215",
       .title = "The GPUs' fabric is not ready",
       .symptom = "'Error 802: system not yet initialized' on a machine with NVSwitch (HGX, DGX); nvidia-smi works, CUDA does not.",
       .cause = "GPUs behind NVSwitch are usable once the fabric manager runs, in exactly the version of the driver.",
       .fix = "start it (systemctl start nvidia-fabricmanager), in the version that `nvidia-smi` shows for the driver; then restart "
              "containers",
       .patterns = {"system not yet initialized", "cudaerrorsystemnotready", "fabric manager * not running"}},
  };
}

}  // namespace lockstep::catalog
