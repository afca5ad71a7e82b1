// Disks, and what the system allows a process.
#include "front/catalog/groups.h"

namespace lockstep::catalog {

std::vector<Entry> about_limits() {
  return {
      {.code = "LS-405",
       .title = "The disk is full",
       .symptom = "'No space left on device', 'Disk quota exceeded', checkpoints stop.",
       .cause = "The disk of the run folder, of the cache or of temporary files has no room.",
       .fix = "free some space, or point --output at another disk; checkpoints that were whole stay so",
       .patterns = {"no space left", "disk quota exceeded", "enospc", "inline_container.cc*unexpected pos"}},
      {.code = "LS-406",
       .title = "Too many open files",
       .symptom = "'Too many open files', EMFILE.",
       .cause =
           "The limit of open files (ulimit -n) is low: every rank holds connections to the others, and files of data and checkpoints.",
       .fix = "raise it: `ulimit -n 65536` in the shell that starts the run, or LimitNOFILE of the service",
       .patterns = {"too many open files", "emfile", "received 0 items of ancdata"}},
      {.code = "LS-407",
       .title = "A folder cannot be written to",
       .symptom = "'Permission denied', 'Read-only file system'.",
       .cause =
           "The run folder, the cache (LOCKSTEP_CACHE, ~/.cache/lockstep) or the folder for temporary files is not this user's to write.",
       .fix = "choose another with --output and LOCKSTEP_CACHE, or mend the rights",
       .patterns = {"permission denied", "read-only file system", "operation not permitted", "choose a folder you may write to",
                    "cannot create the folder"}},
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
       .patterns = {"pthread_create failed", "blas_thread_init", "resource temporarily unavailable", "can't start new thread",
                    "libgomp: thread creation failed"}},
  };
}

}  // namespace lockstep::catalog
