"""How a job starts: ports, places of ranks, missing programs; by hand, under torchrun, as one of two machines. Workers are fakes."""
import ctypes
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import time

import pytest

from fault_jobs import BIN, LAUNCHER_VARIABLES, ROOT, processes_with, wait_until
from support.network import free_port


def test_dry_run_starts_nothing(start):
    job = start("--ranks", 2, "--dry-run", worker="/nowhere").wait()
    assert job.code == 0 and "nothing was started" in job.out
    assert not job.folder.exists()


# A machine's ports without what else runs on it: there others may hold 29500 now and leave it a moment later.
HOLDS_29500 = """import socket, subprocess, sys
subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
with socket.socket() as server:
    server.bind(("127.0.0.1", 29500))
    server.listen()
    sys.exit(subprocess.call(sys.argv[1:]))
"""


@pytest.mark.skipif(os.getuid() != 0 or not shutil.which("unshare") or not shutil.which("ip"), reason="namespaces need root, unshare and ip")
def test_a_busy_port_is_replaced(start):
    job = start("--ranks", 2, prefix=["unshare", "--net", sys.executable, "-c", HOLDS_29500], FAKE_STEPS=2).wait()
    assert job.code == 0 and "port 29500 is in use, port 29501 is taken instead" in job.out, job.out + job.err


def test_a_busy_port_that_was_asked_for_is_refused_and_its_holder_named(start):
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        port = server.getsockname()[1]
        job = start("--ranks", 2, "--port", port).wait()
    assert job.code == 3
    assert f"port {port} is in use by pid {os.getpid()} (" in job.err, job.err
    assert not (job.folder / "config.yaml").exists()


def test_two_jobs_at_once_take_different_ports(start):
    jobs = [start("--ranks", 2, name=f"run{i}", FAKE_STEPS=20) for i in range(3)]
    assert [job.wait().code for job in jobs] == [0, 0, 0], [job.err for job in jobs]


def test_workers_get_their_places(start):
    job = start("--ranks", 2, FAKE_STEPS=100000)
    job.wait_for_step(1)
    seen = {}
    for pid in job.workers():
        variables = dict(entry.split("=", 1) for entry in pathlib.Path(f"/proc/{pid}/environ").read_text().split("\0") if "=" in entry)
        seen[variables["RANK"]] = variables
        assert os.getpgid(pid) == pid, "a process group of its own"
    assert sorted(seen) == ["0", "1"]
    for rank, variables in seen.items():
        assert variables["LOCAL_RANK"] == rank and variables["WORLD_SIZE"] == variables["LOCAL_WORLD_SIZE"] == "2"
        assert variables["MASTER_ADDR"] == "127.0.0.1" and variables["LOCKSTEP_DEVICE"] == "cpu"
        assert int(variables["OMP_NUM_THREADS"]) == max(1, len(os.sched_getaffinity(0)) // 2)
        assert "torch/lib" in variables["LD_LIBRARY_PATH"]


def test_missing_worker_and_libraries_are_said(start, tmp_path):
    job = start(worker=tmp_path / "nowhere").wait()
    assert job.code == 3 and "nowhere is missing or cannot be run" in job.err
    job = start(LOCKSTEP_LIBTORCH=tmp_path).wait()
    assert job.code == 3 and "holds no lib/libtorch_cpu.so" in job.err
    not_a_program = tmp_path / "text"
    not_a_program.write_text("hello")
    not_a_program.chmod(0o755)
    job = start(worker=not_a_program, name="other").wait()
    assert job.code == 3 and "cannot start" in job.err


def test_generate_passes_words_and_output_through(start, tmp_path):
    assert start("--ranks", 2, FAKE_STEPS=2).wait().code == 0
    environment = {**os.environ, "LOCKSTEP_WORKER": str(BIN / "fake_worker")}
    done = subprocess.run([BIN / "lockstep", "generate", "--run", tmp_path / "run", "--prompt", "Once more", "--max_tokens", "5", "--top-k=3", "--device", "cpu"],
                          env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert f"generate: --run {tmp_path / 'run'} --prompt Once more --max-tokens 5 --top-k 3" in done.stdout
    assert "device: cpu" in done.stdout
    done = subprocess.run([BIN / "lockstep", "generate", "--run", tmp_path], env=environment, capture_output=True, text=True)
    assert done.returncode == 2 and "not a run folder" in done.stderr


def by_hand(start, rank, world, port, **variables):
    return start(name=None, RANK=rank, LOCAL_RANK=rank, WORLD_SIZE=world, LOCAL_WORLD_SIZE=world, MASTER_ADDR="127.0.0.1", MASTER_PORT=port, **variables)


def test_by_hand_each_process_is_one_rank_of_one_run(start, tmp_path):
    port = free_port()
    jobs = [by_hand(start, rank, 3, port, FAKE_STEPS=6) for rank in (2, 1, 0)]
    for job in jobs:
        assert job.wait().code == 0, job.err
    folder = tmp_path / f"nano-{port}"
    assert sorted(path.name for path in (folder / "ranks").glob("*.log")) == ["0.log", "1.log", "2.log"]
    assert (folder / "config.yaml").exists() and "finished 6 steps" in jobs[2].out
    assert jobs[0].out == jobs[1].out == ""
    # Jobs started by hand are told by a hash; those of other tests, by their launcher's process.
    assert not list(pathlib.Path("/dev/shm").glob(f"lockstep-{os.getuid()}-{'[0-9a-f]' * 16}/2.*"))


@pytest.mark.parametrize("mpirun", [False, True])
def test_mpiruns_own_terminal_gets_no_live_bar(tmp_path, mpirun):
    """mpirun gives every rank a terminal, also where its output goes into a file."""
    here, there = os.openpty()
    rank = {f"OMPI_COMM_WORLD_{name}": value for name, value in (("RANK", "0"), ("SIZE", "1"), ("LOCAL_RANK", "0"), ("LOCAL_SIZE", "1"))}
    environment = {name: value for name, value in os.environ.items() if name not in LAUNCHER_VARIABLES}
    environment |= {"LOCKSTEP_WORKER": str(BIN / "fake_worker"), "FAKE_STEPS": "6", "TERM": "xterm"} | (rank if mpirun else {})
    command = [BIN / "lockstep", "train", "-f", ROOT / "models/nano.yaml", "--device", "cpu", "--output", tmp_path, "--name", "run", "--ranks", "1"]
    with subprocess.Popen(command, cwd=ROOT, stdout=there, stderr=there, env=environment) as process:
        os.close(there)
        out = b""
        try:
            while more := os.read(here, 4096):
                out += more
        except OSError:  # EIO: the other end is closed
            pass
        os.close(here)
    assert process.returncode == 0 and b"finished 6 steps" in out, out.decode()
    assert (b"\x1b[K" in out) != mpirun, out


def test_by_hand_a_death_ends_the_other_ranks_too(start):
    port = free_port()
    jobs = [by_hand(start, rank, 2, port, FAKE_FAULT="rank=1 step=3 action=kill") for rank in (0, 1)]
    for job in jobs:
        assert job.wait(20).code == 6
    for job in jobs:
        assert "rank 1 of 2 died first" in job.err and "SIGKILL" in job.err
        job.assert_nothing_left()


@pytest.fixture
def no_reaper():
    """Orphans become children of this process, which does not collect them: zombies, as in a container without an init."""
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    assert prctl(36, 1, 0, 0, 0) == 0  # PR_SET_CHILD_SUBREAPER
    yield
    prctl(36, 0, 0, 0, 0)
    while True:
        try:
            if os.waitpid(-1, os.WNOHANG)[0] == 0:
                break
        except ChildProcessError:
            break


def test_by_hand_pages_of_a_dead_job_mean_nothing(start, no_reaper):
    """Both launchers are killed; the next job at the port has the same name, other operations, and a rank 1 that comes late."""
    port = free_port()
    dead = [by_hand(start, rank, 2, port, FAKE_STEPS=100000, FAKE_SAVE=1000000, FAKE_FAULT="rank=0 step=1 action=size;rank=1 step=1 action=size")
            for rank in (0, 1)]
    metrics = start.folder / f"nano-{port}/metrics.jsonl"
    wait_until(lambda: metrics.exists() and '"step":3' in metrics.read_text().replace(" ", ""), what="step 3")
    pages = [variable[14:] for pid in dead[1].workers() for variable in pathlib.Path(f"/proc/{pid}/environ").read_text().split("\0") if variable.startswith("LOCKSTEP_PAGE=")]
    for job in dead:
        job.send(signal.SIGKILL)
        job.wait()
    wait_until(lambda: not processes_with(dead[0].marker) and not processes_with(dead[1].marker), what="the death of the workers")
    page = pathlib.Path(pages[0])
    assert page.exists(), "the dead left their pages"
    steps = dict(FAKE_STEPS=60, FAKE_SAVE=1000000, FAKE_STEP_MS=50)  # longer than the launcher's patience with a puzzle
    first = by_hand(start, 0, 2, port, **steps)
    time.sleep(1)
    assert first.process.poll() is None, "".join(first.process.communicate())
    second = by_hand(start, 1, 2, port, **steps)
    for job in (first, second):
        assert job.wait(30).code == 0, job.err
        job.assert_nothing_left()
    assert "finished 60 steps" in first.out
    shutil.rmtree(page.parent)  # a later start would sweep it


def test_a_rank_that_is_run_twice_is_refused(start):
    port = free_port()
    jobs = [by_hand(start, rank, 2, port, FAKE_STEPS=100000) for rank in (0, 1)]
    jobs[0].folder = start.folder / f"nano-{port}"
    jobs[0].wait_for_step(1)
    again = by_hand(start, 1, 2, port).wait()
    assert again.code == 2 and "is under way, and all its ranks are here already" in again.err, again.err
    jobs[0].send(signal.SIGTERM)
    assert [job.wait().code for job in jobs] == [0, 0]


def test_two_machines_by_our_own_flags(start, tmp_path):
    port = free_port()
    jobs = [start("--ranks", 2, "--nnodes", 2, "--node-rank", node, "--master-addr", socket.gethostname(), "--port", port, FAKE_STEPS=6,
                  LOCKSTEP_SECRET="a secret of this test") for node in (1, 0)]
    for job in jobs:
        assert job.wait().code == 0, job.err
    assert sorted(path.name for path in (tmp_path / "run/ranks").glob("*.log")) == ["0.log", "1.log", "2.log", "3.log"]
    assert "finished 6 steps" in jobs[1].out and "on 4 ranks" in jobs[1].out
    assert "finished." in jobs[0].out and "step" not in jobs[0].out, "machine 0 shows the steps"


def test_incomplete_variables_are_named(start):
    job = start(RANK=0, WORLD_SIZE=2).wait()
    assert job.code == 2 and "LOCAL_RANK, MASTER_ADDR, MASTER_PORT are missing" in job.err
    spawned = start("--spawn", "--ranks", 2, RANK=0, WORLD_SIZE=2, FAKE_STEPS=2).wait()
    assert spawned.code == 0, spawned.err


def torchrun():
    """A torchrun that works: the one of the test environment, or of the python that runs this."""
    for python in (ROOT / ".deps-test/bin/python", pathlib.Path(sys.executable)):
        if python.exists() and subprocess.run([python, "-c", "import torch.distributed.run"], capture_output=True).returncode == 0:
            return [str(python), "-m", "torch.distributed.run"]
    pytest.skip("no python here has torch")


def test_under_torchrun_it_becomes_one_rank(start, tmp_path):
    job = start("--headless", name=None, FAKE_STEPS=4, prefix=[*torchrun(), "--no-python", "--nproc-per-node=2", f"--master-port={free_port()}"]).wait(120)
    assert job.code == 0, job.err
    lines = [json.loads(line) for line in job.out.splitlines() if line.startswith("{")]
    assert lines[0]["event"] == "plan" and lines[0]["ranks"] == 2
    assert lines[-1]["event"] == "end"
    assert len(list(tmp_path.glob("nano-*"))) == 1, "both ranks came to the same name"


def test_under_torchrun_ranks_of_two_runs_are_refused(start):
    """The store is torchrun's; the ranks themselves compare what they are."""
    each_its_seed = ["sh", "-c", 'exec "$@" trainer.seed=$RANK', "sh"]
    job = start("--device", "cpu", "--threads", 1, name="mixed", worker=None,
                prefix=[*torchrun(), "--no-python", "--nproc-per-node=2", f"--master-port={free_port()}", *each_its_seed]).wait(120)
    assert job.code != 0 and re.search(r"trainer.seed is 0 on rank 0 \(\S+\) and 1 on rank 1 \(\S+\)", job.err), job.err
