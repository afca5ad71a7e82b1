// Ranks and machines that do not find, hear or match each other.
#include "front/catalog/groups.h"

namespace lockstep::catalog {

std::vector<Entry> about_communication() {
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
                    "bootstrap : no socket interface found", "a test asked nccl to fail", "nccl initialization"}},
      {.code = "LS-303",
       .title = "A collective took too long",
       .symptom = "'Watchdog caught collective operation timeout', 'NCCL timeout', the run hangs and then ends.",
       .cause =
           "One rank did not come to a collective that the others wait in: it was busy (saving, evaluating, reading data), slow, stuck or "
           "dead. The rank that is missing is the one to look at.",
       .fix =
           "find the rank that did not call it (lockstep names it); raise parallel.timeout_s if one rank may take that long by its nature",
       .patterns = {"watchdog caught collective operation timeout", "collective operation timeout", "nccl timeout",
                    "some nccl operations have failed or timed out", "timed out waiting for gloo",
                    "timed out waiting * for recv operation"}},
      {.code = "LS-304",
       .title = "Connection refused: nobody listens at the meeting point",
       .symptom = "'Connection refused', 'machine 0 was not there within ...', a worker that retries forever.",
       .cause =
           "Machine 0 (or rank 0) is not started yet, has ended, listens at another address or port, or a firewall turns the connection "
           "away.",
       .fix = "start machine 0 first; give all machines the same --master-addr and --port; open that port in the firewall; `lockstep check "
              "--nodes N` on each machine tries it",
       .patterns = {"machine 0 at * was not there within", "cannot * the meeting point at", "the client socket has failed to connect",
                    "connect() * failed: connection refused", "tcpstore * failed to connect", "client socket has timed out",
                    "connection refused"},
       .consequence = true},
      {.code = "LS-305",
       .title = "The port is in use",
       .symptom = "'Address already in use', 'EADDRINUSE', 'port 29500 is in use by pid ...'.",
       .cause = "Another run, or one that has not ended, listens at the port.",
       .fix = "another program took the port meanwhile: start again, or choose one with --port",
       .patterns = {"address already in use", "eaddrinuse", "port * is in use by", "ports from * are in use", "machine 0 cannot listen at",
                    "errno: 98"}},
      {.code = "LS-306",
       .title = "A host name does not resolve",
       .symptom = "'Name or service not known', 'getaddrinfo failed', 'the name ... does not resolve'.",
       .cause = "This machine does not know the name that --master-addr (MASTER_ADDR) gives, or its own.",
       .fix = "`getent hosts NAME` shows what this machine knows; use an IP address, or add the name to DNS or /etc/hosts",
       .patterns = {"name or service not known", "does not resolve", "temporary failure in name resolution", "getaddrinfo",
                    "nodename nor servname provided", "the hostname of the client socket cannot be retrieved"}},
      {.code = "LS-307",
       .title = "Machines cannot reach each other",
       .symptom =
           "'Gloo connectFullMesh failed', 'No route to host', 'Network is unreachable', connections to 127.0.1.1 or a Docker address.",
       .cause =
           "Ranks listen on an address that the others cannot reach: the wrong network interface, a firewall between machines, or a host "
           "name that stands for 127.0.1.1 in /etc/hosts.",
       .fix = "name the interface that connects the machines: GLOO_SOCKET_IFNAME and NCCL_SOCKET_IFNAME; open all ports between them",
       .patterns = {"connectfullmesh failed", "no route to host", "network is unreachable", "could not connect to all other ranks by gloo",
                    "connect() * timed out", "connection timed out", "no socket interface", "unable to find address for"}},
      {.code = "LS-308",
       .title = "Another rank ended first",
       .symptom = "'Connection closed by peer', 'Broken pipe', 'remote error', ChildFailedError.",
       .cause = "This is what the others notice when a rank dies. Its own log tells why.",
       .fix = "look for the rank that failed first: `lockstep explain < log` over the logs of all ranks, or the report of the run",
       .patterns = {"connection closed by peer", "connection reset by peer", "broken pipe", "ncclremoteerror",
                    "nccl communicator was aborted", "recvvalue failed", "sendbytes failed", "application timeout caused pair closure",
                    "childfailederror", "lost the others", "[comm] rank * failed", "process group has been aborted",
                    "nccl watchdog thread terminated"},
       .consequence = true},
      {.code = "LS-309",
       .title = "Ranks called different collectives",
       .symptom = "'ranks disagree on operation ...', 'Detected mismatch between collectives on ranks'.",
       .cause =
           "Every rank must call the same operations in the same order with the same sizes. A branch or a loop count that depends on the "
           "rank is the usual reason.",
       .fix = "the purpose in brackets says where to look; a branch or a loop count that depends on the rank is the usual reason",
       .patterns = {"ranks disagree on operation", "detected mismatch between collectives"}},
      {.code = "LS-310",
       .title = "Nothing moves",
       .symptom = "The run hangs: no new step, GPUs at 100 % or at 0 %.",
       .cause = "One rank is stopped, waits for a disk or for data, or computes something long, and the others wait for it. The report "
                "names it.",
       .fix = "if a step takes that long by its nature, raise monitor.stall_seconds and monitor.stall_abort_seconds",
       .patterns = {"nothing has moved for"}},
      {.code = "LS-311",
       .title = "The launcher's variables are incomplete: no process group",
       .symptom =
           "'Default process group has not been initialized', 'environment variable RANK expected, but not set', WORLD_SIZE is set but "
           "MASTER_ADDR is not.",
       .cause =
           "Some of RANK, LOCAL_RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT are set and others are not, as when a script exports them by "
           "hand or a shell keeps those of an earlier job.",
       .fix =
           "start with plain `lockstep train` or under torchrun, srun or mpirun; unset what is left over, or use --spawn to pass over it",
       .patterns = {"default process group has not been initialized", "process group not initialized", "environment variable rank expected",
                    "environment variable world_size expected", "environment variable master_addr expected",
                    "names a rank of another launcher", "error initializing torch.distributed using env://"}},
      {.code = "LS-312",
       .title = "The machines do not know the same secret",
       .symptom = "'LOCKSTEP_SECRET is not set', a machine is turned away.",
       .cause = "Machines of one run prove to each other that they know one secret, so that nobody else can join.",
       .fix = "copy the command that machine 0 prints, or set the same LOCKSTEP_SECRET (16 characters or more) on all machines",
       .patterns = {"lockstep_secret is not set", "lockstep_secret has *; it needs", "another secret"}},
      {.code = "LS-313",
       .title = "The machines are not parts of one run",
       .symptom = "A refusal when machines meet, with the settings, data or programs that differ.",
       .cause = "All machines must run the same build with the same settings, data and base model, and see the same output folder.",
       .fix = "make equal what the message lists; `lockstep --version` names the build",
       .patterns = {"these machines are not of one run", "these machines cannot save one run",
                    "is not a lockstep launcher of this version"}},
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
      {.code = "LS-316",
       .title = "A machine is gone",
       .symptom = "'machine 1 (name) is gone'.",
       .cause = "Its launcher ended, the machine went down, or the network between them did.",
       .fix = "look there for why its launcher ended; `--max-restarts N` waits for it to come back and goes on from the newest checkpoint",
       .patterns = {"machine * is gone", "nodefail", "node failure"}},
  };
}

}  // namespace lockstep::catalog
