"""Where a Python process stands among those of a launcher, and the examples, alone and as ranks of one."""
import os
import subprocess
import sys

import pytest

import lockstep
from lockstep import distributed
from lockstep.program import call
from support.lockstep import ROOT
from support.network import free_port

EXAMPLES = ROOT / "examples/python"
ENVIRONMENT = {"PYTHONPATH": str(ROOT / "python"), "OMP_NUM_THREADS": "1"}


def start(*words, **variables):
    return subprocess.Popen([sys.executable, *map(str, words)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=ROOT,
                            env={**os.environ, **ENVIRONMENT, **{name: str(value) for name, value in variables.items()}})


def finish(process):
    out, _ = process.communicate(timeout=300)
    assert process.returncode == 0, out
    return out


# Every variable that a launcher could have left in the environment of the tests.
KNOWN = {*distributed._COMMON, "MASTER_ADDR", "MASTER_PORT", "SLURM_SUBMIT_DIR", "SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST", "OMPI_COMM_WORLD_LOCAL_SIZE",
         "MPI_LOCALNRANKS", "TORCHELASTIC_USE_AGENT_STORE", *(name for launcher in distributed._LAUNCHERS for name in (*launcher[:3], *launcher[3]))}
SRUN = {"SLURM_PROCID": "5", "SLURM_NTASKS": "8", "SLURM_LOCALID": "1", "SLURM_JOB_ID": "7", "SLURM_STEP_ID": "0", "SLURM_SUBMIT_DIR": "/x",
        "SLURM_STEP_NODELIST": "node[07-09,12],other"}
OPEN_MPI = {"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_LOCAL_RANK": "1", "OMPI_COMM_WORLD_LOCAL_SIZE": "2",
            "PMIX_NAMESPACE": "a"}


@pytest.fixture
def launcher(monkeypatch):
    """Sets the variables of one, and takes those of any other away."""
    def set_variables(variables):
        for name in KNOWN:
            monkeypatch.delenv(name, raising=False)
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
    return set_variables


@pytest.mark.parametrize("variables,place", [
    ({}, (0, 1, 0)),
    ({"RANK": "3", "WORLD_SIZE": "4", "LOCAL_RANK": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500", "LOCKSTEP_PAGE": "x"}, (3, 4, 1)),
    (SRUN, (5, 8, 1)),
    (OPEN_MPI, (1, 2, 1)),
    ({**SRUN, **OPEN_MPI}, (1, 2, 1)),
    ({"PMI_RANK": "1", "PMI_SIZE": "3", "MPI_LOCALRANKID": "0", "MPI_LOCALNRANKS": "3"}, (1, 3, 0)),
    ({**SRUN, "RANK": "0", "WORLD_SIZE": "2", "LOCAL_RANK": "0"}, (0, 2, 0)),
    ({name: value for name, value in SRUN.items() if name != "SLURM_STEP_ID"}, (0, 1, 0)),
    ({**SRUN, "SLURM_PROCID": "0", "SLURM_NTASKS": "1"}, (0, 1, 0)),
    ({"RANK": "x", "WORLD_SIZE": ""}, (0, 1, 0)),
], ids=["alone", "torchrun, or a rank of lockstep", "srun", "mpirun", "mpirun through srun", "MPICH", "by hand within srun", "sbatch script", "lone task", "no numbers"])
def test_the_place_is_the_launchers(launcher, variables, place):
    launcher(variables)
    assert (distributed.get_rank(), distributed.get_world_size(), distributed.get_local_rank()) == place
    assert distributed.is_main_process() == (place[0] == 0)
    if place[1] == 1:
        distributed.wait_for_everyone()  # at once


def test_the_program_stands_at_the_same_place(launcher, tmp_path):
    """It has a table of its own; what it takes itself for is in its refusal where the master's address is left out or makes no sense."""
    for variables in (SRUN, OPEN_MPI, {**SRUN, **OPEN_MPI}, {"PMI_RANK": "1", "PMI_SIZE": "3", "MPI_LOCALRANKID": "0", "MPI_LOCALNRANKS": "3"}):
        launcher({**variables, "LOCAL_WORLD_SIZE": "1", "LOCAL_RANK": "1", "MASTER_ADDR": "127.0.0.1"})
        done = call("train", "-f", "nano", "--dry-run", check=False)
        assert f"LOCAL_RANK=1, LOCAL_WORLD_SIZE=1 and WORLD_SIZE={distributed.get_world_size()} do not fit" in done.stderr, done.stderr
    for variables in ({name: value for name, value in SRUN.items() if name != "SLURM_STEP_ID"}, {**SRUN, "SLURM_PROCID": "0", "SLURM_NTASKS": "1"}):
        launcher({**variables, "LOCAL_RANK": "0"})
        done = call("train", "-f", "nano", "--dry-run", check=False)
        assert "RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT are missing" in done.stderr, "nothing of Slurm's counts here: " + done.stderr


@pytest.mark.parametrize("variables,place", [
    ({"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "there", "MASTER_PORT": "29500"}, ("there", 30500)),
    ({"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "there", "MASTER_PORT": "65000"}, ("there", 64000)),
    ({"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "there", "MASTER_PORT": "29500", "TORCHELASTIC_USE_AGENT_STORE": "True"}, ("there", 29500)),
    (SRUN, ("node07", None)),
    ({**SRUN, "SLURM_STEP_NODELIST": "a,b[1-2]"}, ("a", None)),
    (OPEN_MPI, ("127.0.0.1", None)),
], ids=["by hand", "the last ports", "torchrun", "srun", "srun, plain names", "mpirun"])
def test_processes_agree_where_they_meet(launcher, variables, place):
    launcher(variables)
    address, port = distributed._meeting_place()
    assert address == place[0] and (port == place[1] or place[1] is None and 30500 <= port < 31500)
    if place[1] is None:
        first, port = port, None
        launcher({**variables, "SLURM_JOB_ID": "8", "PMIX_NAMESPACE": "b"})
        assert distributed._meeting_place()[1] != first, "another start of another job"


def test_where_nothing_tells_the_place_it_is_said(launcher, capsys):
    launcher({"RANK": "0", "WORLD_SIZE": "2", "LOCAL_RANK": "0"})
    with pytest.raises(lockstep.LockstepError, match="2 processes.*set MASTER_ADDR and MASTER_PORT"):
        distributed.wait_for_everyone()


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


MEETS = """
import sys, lockstep
from lockstep import distributed
distributed.wait_for_everyone()
run = lockstep.train("nano", output=sys.argv[1], name="run", device="cpu", max_steps=2, **{"data.stories": 300, "model.num_layers": 1, "data.seq_len": 32})
run.wait()
distributed.wait_for_everyone()
if distributed.is_main_process():
    assert lockstep.attach(run.folder).checkpoints()
else:
    try:
        print(run.folder)
    except lockstep.LockstepError as error:
        assert "only rank 0 hears of the run, and this is rank 1" in str(error)
print(f"rank {distributed.get_rank()} of {distributed.get_world_size()}, local {distributed.get_local_rank()}, main {distributed.is_main_process()}")
"""


@pytest.mark.parametrize("launcher", ["by hand", "mpirun"])
def test_processes_meet_before_and_after_training(tmp_path, launcher):
    """With one port for all of it: data made ready by one process, then training, then what is left to do."""
    (tmp_path / "meets.py").write_text(MEETS)
    if launcher == "mpirun":
        place = {"OMPI_COMM_WORLD_SIZE": 2, "OMPI_COMM_WORLD_LOCAL_SIZE": 2, "PMIX_NAMESPACE": f"prterun-{os.getpid()}@1"}
        ranks = [start(tmp_path / "meets.py", tmp_path / "out", OMPI_COMM_WORLD_RANK=rank, OMPI_COMM_WORLD_LOCAL_RANK=rank, **place) for rank in range(2)]
    else:
        place = {"WORLD_SIZE": 2, "LOCAL_WORLD_SIZE": 2, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": free_port()}
        ranks = [start(tmp_path / "meets.py", tmp_path / "out", RANK=rank, LOCAL_RANK=rank, **place) for rank in range(2)]
    last_words = [finish(rank).splitlines()[-1] for rank in ranks]  # before them torch may wonder about a machine whose name does not resolve
    assert last_words == ["rank 0 of 2, local 0, main True", "rank 1 of 2, local 1, main False"]


def test_under_torchrun(tmp_path):
    (tmp_path / "meets.py").write_text(MEETS)
    said = finish(start("-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", tmp_path / "meets.py", tmp_path / "out"))
    assert {"rank 0 of 2, local 0, main True", "rank 1 of 2, local 1, main False"} <= set(said.splitlines())


def test_who_does_not_come_is_missed(tmp_path):
    place = {"RANK": 0, "WORLD_SIZE": 3, "LOCAL_RANK": 0, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": free_port()}
    out, _ = start("-c", "from lockstep import distributed; distributed.wait_for_everyone(timeout_s=1)", **place).communicate(timeout=120)
    assert out.rstrip().endswith("TimeoutError: 1 of 3 processes have come within 1 s"), out


def test_processes_of_a_launcher_become_its_ranks(tmp_path):
    """As torchrun starts them: each runs the script, each becomes one rank, and they meet afterwards."""
    place = {"WORLD_SIZE": 2, "LOCAL_WORLD_SIZE": 2, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": free_port()}
    ranks = [start(EXAMPLES / "multi_gpu_training.py", "--output", tmp_path / "run", "--max-steps", 2, "--device", "cpu", RANK=rank, LOCAL_RANK=rank, **place)
             for rank in range(2)]
    said = [finish(rank) for rank in ranks]
    assert "2 steps, mean loss" in said[0] and "rank 0 of 2" in said[0]
    assert "rank" not in said[1] and "It writes" not in said[1]
