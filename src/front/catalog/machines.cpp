// Machines and processes that do not find each other.
#include "front/catalog/groups.h"

namespace lockstep::catalog {

std::vector<Entry> about_machines() {
  return {
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
                    "connection refused", "connection to the c10d store has failed", "rendezvousconnectionerror"},
       .consequence = true},
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
                    "names a rank of another launcher", "error initializing torch.distributed using env://", "keyerror: 'local_rank'",
                    "keyerror: 'rank'", "keyerror: 'world_size'"}},
      {.code = "LS-312",
       .title = "The machines do not know the same secret",
       .symptom = "'LOCKSTEP_SECRET is not set', a machine is turned away.",
       .cause = "Machines of one run prove to each other that they know one secret, so that nobody else can join.",
       .fix = "copy the command that machine 0 prints, or set the same LOCKSTEP_SECRET (16 characters or more) on all machines",
       .patterns = {"lockstep_secret is not set", "lockstep_secret has *; it needs", "another secret",
                    "does not know this machine's lockstep_secret"}},
      {.code = "LS-313",
       .title = "The machines are not parts of one run",
       .symptom = "A refusal when machines meet, with the settings, data or programs that differ.",
       .cause = "All machines must run the same build with the same settings, data and base model, and see the same output folder.",
       .fix = "make equal what the message lists; `lockstep --version` names the build",
       .patterns = {"these machines are not of one run", "these machines cannot save one run", "is not a lockstep launcher of this version",
                    "runs another version of lockstep", "speaks another version", "give all of them the same --nnodes",
                    "needs a --node-rank of its own", "mismatched nccl version"}},
      {.code = "LS-316",
       .title = "A machine is gone",
       .symptom = "'machine 1 (name) is gone'.",
       .cause = "Its launcher ended, the machine went down, or the network between them did.",
       .fix = "look there for why its launcher ended; `--max-restarts N` waits for it to come back and goes on from the newest checkpoint",
       .patterns = {"machine * is gone", "nodefail", "node failure", "due to node failure", "has lost communication with a remote daemon"}},
      {.code = "LS-318",
       .title = "Not all machines came",
       .symptom = "'1 of 2 machines is here; missing node rank 1', torchrun's RendezvousTimeoutError, 'Timed out ... waiting for clients. "
                  "1/2 clients joined'.",
       .cause = "Another machine was not started, was started with another --nnodes, --master-addr or --port, or cannot reach this one.",
       .fix = "start the command that machine 0 prints on every other machine; `lockstep check --nodes N` on each shows who comes",
       .patterns = {"waiting for clients", "rendezvoustimeouterror", "is here; missing", "are here; missing",
                    "timed out initializing process group", "runtimeerror: socket timeout"}},
  };
}

}  // namespace lockstep::catalog
