"""Two machines over NCCL's network transport, as far as one host shows it: two launchers that meet over its address, and ranks that NCCL takes
for ranks of different hosts."""
import concurrent.futures
import socket

from equality import COMMON, F32, yardstick
from suite import Case, Problem, Run, Skip, Suite, expect_close

PORT = 29731


def own_address() -> str:
    """The address that packets to the world would bear; nothing is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
            return probe.getsockname()[0]
        except OSError as why:
            raise Skip(f"this machine has no address but its own loopback: {why}") from None


def two_machines(suite: Suite) -> str:
    expected, run, address = yardstick(suite), Run(suite.folder / "nccl-two-machines"), own_address()
    suite.command(["rm", "-rf", run.folder])

    def machine(number: int) -> str:
        words = [suite.lockstep, "train", "--output", suite.folder, "--name", run.folder.name, *suite.place(), *COMMON, "--batch-size", 8, "--dtype", "f32",
                 "--nnodes", 2, "--node-rank", number, "--master-addr", address, "--master-port", PORT]
        return suite.command(words, env={"LOCKSTEP_SECRET": "0123456789abcdef0123456789abcdef", "NCCL_HOSTID": f"machine-{number}"}, timeout=90).stdout

    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        list(pool.map(machine, range(2)))
    summary = run.summary()
    if suite.device == "cuda" and (summary["backend"], summary["ranks"]) != ("nccl", 2):
        raise Problem(f"{summary['ranks']} ranks over {summary['backend']}, not 2 over nccl")
    return expect_close("two machines", run.losses(), expected.losses(), F32)


CASES = [Case("nccl-two-machines", 8, two_machines)]
