"""Where a Python process stands among those of a launcher, and the examples, alone and as ranks of one."""
import os
import subprocess
import sys

import pytest

from lockstep import distributed
from support.lockstep import ROOT

EXAMPLES = ROOT / "examples/python"
ENVIRONMENT = {"PYTHONPATH": str(ROOT / "python"), "OMP_NUM_THREADS": "1"}


def start(script, *arguments, **variables):
    return subprocess.Popen([sys.executable, script, *map(str, arguments)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=ROOT,
                            env={**os.environ, **ENVIRONMENT, **{name: str(value) for name, value in variables.items()}})


def finish(process):
    out, _ = process.communicate(timeout=300)
    assert process.returncode == 0, out
    return out


@pytest.mark.parametrize("variables,place", [
    ({}, (0, 1, 0)),
    ({"RANK": "3", "WORLD_SIZE": "4", "LOCAL_RANK": "1"}, (3, 4, 1)),
    ({"SLURM_PROCID": "5", "SLURM_NTASKS": "8", "SLURM_LOCALID": "1"}, (5, 8, 1)),
    ({"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_LOCAL_RANK": "1"}, (1, 2, 1)),
    ({"RANK": "x", "WORLD_SIZE": ""}, (0, 1, 0)),
])
def test_the_place_is_the_launchers(monkeypatch, variables, place):
    for names in distributed._NAMES.values():
        for name in names:
            monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert (distributed.get_rank(), distributed.get_world_size(), distributed.get_local_rank()) == place
    assert distributed.is_main_process() == (place[0] == 0)
    if place[1] == 1:
        distributed.wait_for_everyone()  # at once


def test_what_there_is(capsys):
    assert distributed.is_distributed_available()
    distributed.print_distributed_info()
    said = capsys.readouterr().out
    assert said.startswith("lockstep 0.") and "rank 0 of 1" in said


def test_the_examples_train_and_write(tmp_path):
    said = finish(start(EXAMPLES / "multi_gpu_training.py", "--output", tmp_path / "run", "--max-steps", 2, "--device", "cpu", "--ranks", 2))
    assert "2 steps, mean loss" in said and "It writes: " in said
    said = finish(start(EXAMPLES / "multi_gpu_inference.py", "--run", tmp_path / "run", "--max-tokens", 3, "--device", "cpu", "--ranks", 2))
    assert "8 prompts in" in said and said.count("[length]") == 8


def free_port():
    import socket
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def test_processes_of_a_launcher_become_its_ranks(tmp_path):
    """As torchrun starts them: each runs the script, each becomes one rank, and they meet afterwards."""
    place = {"WORLD_SIZE": 2, "LOCAL_WORLD_SIZE": 2, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": free_port()}
    ranks = [start(EXAMPLES / "multi_gpu_training.py", "--output", tmp_path / "run", "--max-steps", 2, "--device", "cpu", RANK=rank, LOCAL_RANK=rank, **place)
             for rank in range(2)]
    said = [finish(rank) for rank in ranks]
    assert "2 steps, mean loss" in said[0] and "rank 0 of 2" in said[0]
    assert "rank" not in said[1] and "It writes" not in said[1]
