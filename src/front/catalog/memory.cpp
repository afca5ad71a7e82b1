// Memory of GPUs, of machines, and what ranks share.
#include "front/catalog/groups.h"

namespace lockstep::catalog {

std::vector<Entry> about_memory() {
  return {
      {.code = "LS-401",
       .title = "GPU memory is full",
       .symptom = "'CUDA out of memory. Tried to allocate ...', CUBLAS_STATUS_ALLOC_FAILED.",
       .cause = "Weights, gradients, optimizer states and activations of a micro-batch do not fit beside what others hold of the GPU.",
       .fix =
           "less memory on the GPU: a smaller --batch-size with a larger --grad-accum keeps the result, or a shorter --seq-len, --dtype "
           "bf16, or on several GPUs --shard full, which cuts weights, gradients and optimizer states between them; `lockstep plan -f FILE "
           "--memory 24GiB` shows what a rank needs, part by part, and which settings fit",
       .patterns = {"cuda out of memory", "cuda error: out of memory", "cudaerrormemoryallocation", "cublas_status_alloc_failed",
                    "cuda_error_out_of_memory", "the device's memory is full", "torch.outofmemoryerror", "hip out of memory",
                    "there is no room for * of device memory", "cuda failure 'out of memory'", "outofmemoryerror",
                    "resource_exhausted: out of memory", "cublas_status_not_initialized", "cudnn_status_not_initialized",
                    "dispatched on the cpu or the disk"}},
      {.code = "LS-402",
       .title = "The machine's memory is full",
       .symptom = "'std::bad_alloc', 'Cannot allocate memory', \"DefaultCPUAllocator: can't allocate memory\".",
       .cause = "All ranks of a machine share its memory: each holds its own buffers and what is prefetched.",
       .fix = "less memory: a smaller --batch-size with a larger --grad-accum keeps the result; or fewer ranks (--ranks), or --shard "
              "full, with which they hold parts instead of copies",
       .patterns = {"std::bad_alloc", "defaultcpuallocator", "the machine's memory is full", "cannot allocate memory", "not enough memory",
                    "memoryerror", "there is no room for * of host memory"}},
      {.code = "LS-403",
       .title = "Killed for want of memory",
       .symptom = "A rank is 'Killed' without a word, exit code 137 or -9, 'oom-kill' in dmesg, 'Detected 1 oom-kill event(s)'.",
       .cause = "The kernel, a container or a scheduler ended the process because the machine's or the container's memory was used up.",
       .fix = "less memory on the host: fewer ranks (--ranks), a smaller --batch-size, data.prefetch=1, or a larger memory limit for the "
              "container or job",
       .patterns = {"out-of-memory killer", "oom-kill", "out of memory: killed process", "oom killed", "exitcode: -9", "exit code 137",
                    "signal 9 (sigkill)", "exitcode  : -9 (", "oomkilled", "exit code: 137", " killed      ",
                    "srun: error: *: out of memory", "is killed by signal: killed"}},
      {.code = "LS-404",
       .title = "Shared memory (/dev/shm) is too small",
       .symptom =
           "'Bus error', 'unable to open shared memory object', 'DataLoader worker is killed by signal: Bus error', NCCL fails with 'No "
           "space left on device' in a container.",
       .cause =
           "Ranks of one machine talk through /dev/shm: their pages, and NCCL's buffers of several MiB for each pair. Docker gives 64 MiB.",
       .fix = "`df -h /dev/shm` shows whether shared memory is full (containers: --shm-size)",
       .patterns = {"bus error", "sigbus", "unable to open shared memory object", "insufficient shared memory", "/dev/shm/nccl",
                    "error while creating shared memory segment", "no space left on device* /dev/shm", "cannot make the rank's page",
                    "exitcode  : -7 ("}},
      {.code = "LS-408",
       .title = "The container's memory limit is low",
       .symptom = "Ranks are killed though the machine has memory left.",
       .cause = "A control group (Docker --memory, Kubernetes limits, a SLURM job) allows less than the machine has.",
       .fix = "raise the limit, or use fewer ranks"},
      {.code = "LS-409",
       .title = "Memory cannot be locked for the network card",
       .symptom = "'ibv_reg_mr failed', 'ibv_create_qp: Cannot allocate memory', NCCL over InfiniBand does not start.",
       .cause = "InfiniBand needs locked memory, and the limit (ulimit -l) is low.",
       .fix = "`ulimit -l unlimited` for the job (Docker: --ulimit memlock=-1), or NCCL_IB_DISABLE=1 to go over sockets",
       .patterns = {"ibv_reg_mr", "ibv_create_qp", "ibv_create_cq", "call to ibv_* failed with error"}},
  };
}

}  // namespace lockstep::catalog
