"""Where this Python process stands among those that a launcher (torchrun, srun, mpirun) started.

Training needs none of this: `lockstep` starts its own ranks. It is for scripts that are started once per GPU themselves, and for what
only one of them should do. Under a launcher every process calls Trainer.train(), and `lockstep` becomes that one rank.
"""
import os
import socket

# Who says it, first found first: torchrun and people, Slurm, Open MPI.
_NAMES = {
    "rank": ("RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK"),
    "world_size": ("WORLD_SIZE", "SLURM_NTASKS", "OMPI_COMM_WORLD_SIZE"),
    "local_rank": ("LOCAL_RANK", "SLURM_LOCALID", "OMPI_COMM_WORLD_LOCAL_RANK"),
}
_store, _meetings = None, 0


def _number(what: str, otherwise: int) -> int:
    for name in _NAMES[what]:
        if (value := os.environ.get(name, "")).isdigit():
            return int(value)
    return otherwise


def get_rank() -> int:
    return _number("rank", 0)


def get_world_size() -> int:
    return max(1, _number("world_size", 1))


def get_local_rank() -> int:
    return _number("local_rank", 0)


def is_main_process() -> bool:
    return get_rank() == 0


def is_distributed_available() -> bool:
    """Whether several ranks can train here: the program and its LibTorch are found."""
    from .errors import LockstepError
    from .program import call
    try:
        return call("devices", check=False).returncode == 0
    except (OSError, LockstepError):
        return False


def wait_for_everyone(timeout_s: float = 1800) -> None:
    """Comes back when every process of the job has called it as often. Alone, at once."""
    global _store, _meetings
    if get_world_size() == 1:
        return
    import datetime
    import sys
    torch = sys.modules.get("torch")
    if torch is not None and torch.distributed.is_available() and torch.distributed.is_initialized():
        torch.distributed.barrier()
        return
    from torch.distributed import TCPStore
    wait = datetime.timedelta(seconds=timeout_s)
    if _store is None:
        # torchrun's agent keeps a store at this address for its processes; elsewhere rank 0 does.
        kept = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
        _store = TCPStore(os.environ.get("MASTER_ADDR", "127.0.0.1"), int(os.environ["MASTER_PORT"]), get_world_size(),
                          is_master=is_main_process() and not kept, timeout=wait)
    _meetings += 1
    name = f"lockstep/meeting/{os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}/{_meetings}"
    if _store.add(name, 1) == get_world_size():
        _store.set(name + "/all", "1")
    _store.wait([name + "/all"], wait)


def print_distributed_info() -> None:
    """Rank 0 says who is there; others are silent."""
    from .program import call, version
    if not is_main_process():
        return
    about = version()
    print(f"lockstep {about['version']} (commit {about['commit']}), LibTorch {about['torch']}")
    print(f"  process      rank {get_rank()} of {get_world_size()}, local rank {get_local_rank()}, on {socket.gethostname()}")
    if get_world_size() == 1:
        print("  ranks        `lockstep` starts its own, one a GPU")
    else:
        print(f"  meets at     {os.environ.get('MASTER_ADDR', '?')}:{os.environ.get('MASTER_PORT', '?')}")
    for line in call("devices", check=False).stdout.splitlines():
        print(f"  {line}")
