"""Where this Python process stands among those that a launcher (torchrun, srun, mpirun) started.

Training needs none of this: `lockstep` starts its own ranks. It is for scripts that are started once per GPU themselves, and for what
only one of them should do. Under a launcher every process calls Trainer.train(), and `lockstep` becomes that one rank.
"""
from __future__ import annotations

import atexit
import datetime
import hashlib
import os
import re
import socket
import sys
from typing import Any

from .errors import LockstepError

# rank, world size, local rank, and what together names one start of the job. Those that people and torchrun set go first; then the closest:
# Open MPI reaches other nodes through an srun of its own, and srun can speak PMI. src/front/launch/place.cpp has the same table for ranks.
_COMMON = ("RANK", "WORLD_SIZE", "LOCAL_RANK")
_LAUNCHERS = (
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK", ("PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid")),
    ("SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", ("SLURM_JOB_ID", "SLURM_STEP_ID")),
    ("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", ("SLURM_JOB_ID", "PMI_JOBID")),
)
# Processes meet so far from the port where their ranks meet: both may be at it at once.
_MEETING_PORT = 1000
_FIRST_PORT, _LAST_PORT = 29500, 65535
_store: Any = None
_meetings = 0


def _launcher() -> tuple[str, str, str, tuple[str, str]] | None:
    for launcher in _LAUNCHERS:
        rank, world_size = os.environ.get(launcher[0]), os.environ.get(launcher[1])
        if not rank or not world_size:
            continue
        # An sbatch script has the variables of the first task without being one; and a lone task is no launch of ranks.
        in_script = "SLURM_SUBMIT_DIR" in os.environ and "SLURM_STEP_ID" not in os.environ
        if launcher[0] == "SLURM_PROCID" and (in_script or world_size == "1"):
            continue
        return launcher
    return None


def _number(which: int, otherwise: int) -> int:
    launcher = _launcher()
    for name in (_COMMON[which], *([str(launcher[which])] if launcher else [])):
        if (value := os.environ.get(name, "")).isdigit():
            return int(value)
    return otherwise


def get_rank() -> int:
    return _number(0, 0)


def get_world_size() -> int:
    return max(1, _number(1, 1))


def get_local_rank() -> int:
    return _number(2, 0)


def is_main_process() -> bool:
    return get_rank() == 0


def is_distributed_available() -> bool:
    """Whether several ranks can train here: the program and its LibTorch are found."""
    from .program import call
    try:
        return call("devices", check=False).returncode == 0
    except (OSError, LockstepError):
        return False


def _agent_keeps_a_store() -> bool:
    """torchrun's agent keeps one for its processes, at the address that it gives them; elsewhere rank 0 does."""
    return os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"


def _meeting_place() -> tuple[str, int]:
    """Address and port, the same for all processes of the job. Raises where nothing tells them."""
    launcher = _launcher()
    address, port = os.environ.get("MASTER_ADDR", ""), os.environ.get("MASTER_PORT", "")
    nodes = os.environ.get("SLURM_STEP_NODELIST") or os.environ.get("SLURM_JOB_NODELIST")
    if not address and launcher and launcher[0] == "SLURM_PROCID" and nodes:
        address = _first_host(nodes)
    elif not address and launcher and os.environ.get("OMPI_COMM_WORLD_LOCAL_SIZE", os.environ.get("MPI_LOCALNRANKS")) == str(get_world_size()):
        address = "127.0.0.1"
    if not port and launcher:
        job = "/".join(os.environ.get(name, "") for name in launcher[3])
        port = str(_FIRST_PORT + int(hashlib.sha256(job.encode()).hexdigest(), 16) % 1000)
    missing = [name for name, value in (("MASTER_ADDR", address), ("MASTER_PORT", port if port.isdigit() else "")) if not value]
    if missing:
        raise LockstepError(f"there are {get_world_size()} processes, but nothing tells where they meet: set {' and '.join(missing)}.", 2)
    if _agent_keeps_a_store():
        return address, int(port)
    apart = int(port) + _MEETING_PORT
    return address, apart if apart <= _LAST_PORT else int(port) - _MEETING_PORT


def _first_host(nodes: str) -> str:
    """node[01-03,7],b: node01."""
    match = re.match(r"([^,\[]*)(?:\[([^,\-\]]*))?", nodes)
    return "".join(part or "" for part in match.groups()) if match else nodes


def _name_of(meeting: int) -> str:
    return f"lockstep/meeting/{os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}/{meeting}"


def wait_for_everyone(timeout_s: float = 1800) -> None:
    """Comes back when every process of the job has called it as often. Alone, at once. TimeoutError says how many have come."""
    global _store, _meetings
    world_size = get_world_size()
    if world_size == 1:
        return
    torch = sys.modules.get("torch")
    if torch is not None and torch.distributed.is_available() and torch.distributed.is_initialized():
        torch.distributed.barrier()
        return
    address, port = _meeting_place()
    from torch.distributed import TCPStore
    wait, keeps = datetime.timedelta(seconds=timeout_s), is_main_process() and not _agent_keeps_a_store()
    if _store is None:
        try:
            _store = TCPStore(address, port, world_size, is_master=keeps, timeout=wait, wait_for_workers=False)
        except RuntimeError as error:
            raise LockstepError(f"processes meet at {address}:{port}, and that cannot be reached: {str(error).splitlines()[0]}", 3) from None
        if keeps:
            atexit.register(_let_everyone_leave)
    _meetings += 1
    name = _name_of(_meetings)
    _count(name)
    try:
        _store.wait([name + "/all"], wait)
    except RuntimeError:
        raise TimeoutError(f"{_store.add(name, 0)} of {world_size} processes have come within {timeout_s:g} s") from None
    _count(name + "/left")


def _count(name: str) -> None:
    """One more; the last one says that it is all."""
    if _store.add(name, 1) == get_world_size():
        _store.set(name + "/all", "1")


def _let_everyone_leave() -> None:
    """The process that keeps the store ends last, or others would find nobody who tells them that all have come."""
    name = _name_of(_meetings)
    try:
        if _store.check([name + "/all"]):
            _store.wait([name + "/left/all"], datetime.timedelta(seconds=10))
    except RuntimeError:
        pass  # someone has died on the way


def print_distributed_info() -> None:
    """Rank 0 says who is there; others are silent."""
    from .program import call, version
    if not is_main_process():
        return
    about = version()
    print(f"lockstep {about['version']} ({about['build']}), LibTorch {about['torch']}")
    print(f"  process      rank {get_rank()} of {get_world_size()}, local rank {get_local_rank()}, on {socket.gethostname()}")
    if get_world_size() == 1:
        print("  ranks        `lockstep` starts its own, one a GPU")
    else:
        address, port = _meeting_place()
        print(f"  meets at     {address}:{port}")
    for line in call("devices", check=False).stdout.splitlines():
        print(f"  {line}")
