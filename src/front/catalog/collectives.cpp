// Ranks that do not hear or match each other.
#include "front/catalog/groups.h"

namespace lockstep::catalog {

std::vector<Entry> about_collectives() {
  return {
      {.code = "LS-301",
       .title = "Two ranks on one GPU",
       .symptom = "'Duplicate GPU detected', NCCL's 'invalid usage'.",
       .cause = "NCCL takes one rank a GPU. More ranks were started than there are GPUs, or each rank chose GPU 0.",
       .fix = "start one rank for each GPU (leave --ranks out); LOCKSTEP_OVERSUBSCRIBE=1 lets ranks share one, for tests",
       .patterns = {"duplicate gpu detected", "names gpu * twice", "ranks need * gpus, and * can be used"}},
      {.code = "LS-302",
       .title = "NCCL could not start",
       .symptom = "'NCCL initialization failed', 'ncclSystemError', 'unhandled system error', 'NCCL cannot connect rank ...'.",
       .cause =
           "GPUs could not set up their ways to each other: too little shared memory, a network interface that does not exist, peer access "
           "that hangs, drivers that differ, a firewall between machines.",
       .fix = "NCCL_DEBUG=INFO shows what NCCL does; --sync-backend gloo or cpu goes without it",
       .patterns = {"nccl cannot connect", "ncclsystemerror", "ncclinternalerror", "ncclinvalidusage", "ncclunhandledcudaerror",
                    "unhandled system error", "unhandled cuda error", "nccl error", "ncclcomminitrank", "nccl warn",
                    "a test asked nccl to fail", "nccl initialization"},
       .consequence = true},
      {.code = "LS-303",
       .title = "A collective took too long",
       .symptom = "'Watchdog caught collective operation timeout', 'NCCL timeout', the run hangs and then ends.",
       .cause =
           "One rank did not come to a collective that the others wait in: it was busy (saving, evaluating, reading data), slow, stuck or "
           "dead. The rank that is missing is the one to look at.",
       .fix =
           "find the rank that did not call it (lockstep names it); raise parallel.timeout_s if one rank may take that long by its nature",
       .patterns = {"watchdog caught collective operation timeout", "collective operation timeout", "nccl timeout",
                    "some nccl operations have failed or timed out", "timed out waiting for gloo", "timed out waiting * for recv operation",
                    "timed out: rank * has moved nothing for", "timeout at nccl work", "due to collective timeout or exception",
                    "watchdog got stuck for"}},
      {.code = "LS-308",
       .title = "Another rank ended first",
       .symptom = "'Connection closed by peer', 'Broken pipe', 'remote error', ChildFailedError.",
       .cause = "This is what the others notice when a rank dies. Its own log tells why.",
       .fix = "look for the rank that failed first: `lockstep explain < log` over the logs of all ranks, or the report of the run",
       .patterns = {"connection closed by peer", "connection reset by peer", "broken pipe", "ncclremoteerror",
                    "nccl communicator was aborted", "recvvalue failed", "sendbytes failed", "application timeout caused pair closure",
                    "childfailederror", "lost the others", "[comm] rank * failed", "process group has been aborted",
                    "nccl watchdog thread terminated", "connection closed by remote peer", "closing signal sigterm",
                    "remote process exited or there was a network error", "failed: rank * is gone"},
       .consequence = true},
      {.code = "LS-309",
       .title = "Ranks called different collectives",
       .symptom = "'ranks disagree on operation ...', 'Detected mismatch between collectives on ranks'.",
       .cause =
           "Every rank must call the same operations in the same order with the same sizes. A branch or a loop count that depends on the "
           "rank is the usual reason.",
       .fix = "the purpose in brackets says where to look; a branch or a loop count that depends on the rank is the usual reason",
       .patterns = {"ranks disagree on operation", "detected mismatch between collectives", "sent * bytes, * were expected"}},
      {.code = "LS-310",
       .title = "Nothing moves",
       .symptom = "The run hangs: no new step, GPUs at 100 % or at 0 %.",
       .cause = "One rank is stopped, waits for a disk or for data, or computes something long, and the others wait for it. The report "
                "names it.",
       .fix = "if a step takes that long by its nature, raise monitor.stall_seconds and monitor.stall_abort_seconds",
       .patterns = {"nothing has moved for"}},
      {.code = "LS-314",
       .title = "A collective gave wrong numbers",
       .symptom = "`lockstep check` or `bench comm` stops with 'gave wrong numbers'; losses differ between machines that should agree.",
       .cause = "Numbers were changed on their way: a faulty GPU, link or network card, or a broken peer access (IOMMU, ACS).",
       .fix = "try NCCL_P2P_DISABLE=1 (then NCCL_SHM_DISABLE=1) to find the way that fails; leave GPUs out one by one with --gpus to find "
              "which",
       .patterns = {"gave wrong numbers"}},
      {.code = "LS-315",
       .title = "GPUs talk slower than their link allows",
       .symptom = "More GPUs bring little; communication takes much of a step.",
       .cause =
           "Traffic goes over a slower way than it could: peer access is off, NCCL_* variables force another way, lanes are missing, or "
           "someone else uses the link.",
       .fix = "unset NCCL_P2P_DISABLE and NCCL_SHM_DISABLE; see LS-208 and LS-210; `lockstep bench comm` shows every size"},
  };
}

}  // namespace lockstep::catalog
