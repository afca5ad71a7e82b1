// Memory, disks and what the system allows a process.
#include "front/catalog/groups.h"

namespace lockstep::catalog {

std::vector<Entry> about_room() {
  return {
      {.code = "LS-401",
       .title = "GPU memory is full",
       .symptom = "'CUDA out of memory. Tried to allocate ...', CUBLAS_STATUS_ALLOC_FAILED.",
       .cause = "Weights, gradients, optimizer states and activations of a micro-batch do not fit beside what others hold of the GPU.",
       .fix =
           "less memory on the GPU: a smaller --batch-size with a larger --grad-accum keeps the result, or a shorter --seq-len, or --dtype "
           "bf16; `lockstep train --dry-run` shows what a rank needs, part by part",
       .patterns = {"cuda out of memory", "cuda error: out of memory", "cudaerrormemoryallocation", "cublas_status_alloc_failed",
                    "cuda_error_out_of_memory", "the device's memory is full", "torch.outofmemoryerror", "hip out of memory",
                    "fits into memory. lower data.seq_len", "there is no room for * of device memory"}},
      {.code = "LS-402",
       .title = "The machine's memory is full",
       .symptom = "'std::bad_alloc', 'Cannot allocate memory', \"DefaultCPUAllocator: can't allocate memory\".",
       .cause = "All ranks of a machine share its memory: each holds its own buffers and what is prefetched.",
       .fix = "less memory: a smaller --batch-size with a larger --grad-accum keeps the result; or fewer ranks (--ranks)",
       .patterns = {"std::bad_alloc", "defaultcpuallocator", "the machine's memory is full", "cannot allocate memory", "not enough memory",
                    "memoryerror", "there is no room for * of host memory"}},
      {.code = "LS-403",
       .title = "Killed for want of memory",
       .symptom = "A rank is 'Killed' without a word, exit code 137 or -9, 'oom-kill' in dmesg, 'Detected 1 oom-kill event(s)'.",
       .cause = "The kernel, a container or a scheduler ended the process because the machine's or the container's memory was used up.",
       .fix = "less memory on the host: fewer ranks (--ranks), a smaller --batch-size, data.prefetch=1, or a larger memory limit for the "
              "container or job",
       .patterns = {"out-of-memory killer", "oom-kill", "out of memory: killed process", "oom killed", "exitcode: -9", "exit code 137",
                    "signal 9 (sigkill)"}},
      {.code = "LS-404",
       .title = "Shared memory (/dev/shm) is too small",
       .symptom =
           "'Bus error', 'unable to open shared memory object', 'DataLoader worker is killed by signal: Bus error', NCCL fails with 'No "
           "space left on device' in a container.",
       .cause =
           "Ranks of one machine talk through /dev/shm: their pages, and NCCL's buffers of several MiB for each pair. Docker gives 64 MiB.",
       .fix = "`df -h /dev/shm` shows whether shared memory is full (containers: --shm-size)",
       .patterns = {"bus error", "sigbus", "unable to open shared memory object", "insufficient shared memory", "/dev/shm/nccl",
                    "error while creating shared memory segment", "no space left on device* /dev/shm", "cannot make the rank's page"}},
      {.code = "LS-405",
       .title = "The disk is full",
       .symptom = "'No space left on device', 'Disk quota exceeded', checkpoints stop.",
       .cause = "The disk of the run folder, of the cache or of temporary files has no room.",
       .fix = "free some space, or point --output at another disk; the last whole checkpoint is intact",
       .patterns = {"no space left", "disk quota exceeded", "enospc"}},
      {.code = "LS-406",
       .title = "Too many open files",
       .symptom = "'Too many open files', EMFILE.",
       .cause =
           "The limit of open files (ulimit -n) is low: every rank holds connections to the others, and files of data and checkpoints.",
       .fix = "raise it: `ulimit -n 65536` in the shell that starts the run, or LimitNOFILE of the service",
       .patterns = {"too many open files", "emfile"}},
      {.code = "LS-407",
       .title = "A folder cannot be written to",
       .symptom = "'Permission denied', 'Read-only file system'.",
       .cause =
           "The run folder, the cache (LOCKSTEP_CACHE, ~/.cache/lockstep) or the folder for temporary files is not this user's to write.",
       .fix = "choose another with --output and LOCKSTEP_CACHE, or mend the rights",
       .patterns = {"permission denied", "read-only file system", "operation not permitted", "choose a folder you may write to",
                    "cannot create the folder"}},
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
       .patterns = {"ibv_reg_mr", "ibv_create_qp", "ibv_create_cq", "call to ibv_"}},
      {.code = "LS-410",
       .title = "The clock is wrong",
       .symptom = "Certificates are refused, checkpoints sort in the wrong order, logs of machines do not fit together.",
       .cause = "The machine's clock is not set, or differs from the other machines'.",
       .fix = "switch on time synchronization (timedatectl set-ntp true, chrony)"},
      {.code = "LS-411",
       .title = "No more threads or processes can be started",
       .symptom = "'Resource temporarily unavailable', 'pthread_create failed', 'OpenBLAS blas_thread_init'.",
       .cause = "The limit of processes (ulimit -u, or the container's pids limit) is used up.",
       .fix = "raise it (ulimit -u, Docker --pids-limit), or start fewer ranks",
       .patterns = {"pthread_create failed", "blas_thread_init", "resource temporarily unavailable", "can't start new thread"}},
  };
}

}  // namespace lockstep::catalog
