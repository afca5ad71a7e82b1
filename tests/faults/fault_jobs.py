"""Starts the real `lockstep` on workers, real or fake, and looks at what is left when it ends."""
import os
import pathlib
import signal
import subprocess
import time

import pytest

from support.lockstep import lines_of

ROOT = pathlib.Path(__file__).resolve().parents[2]
BIN = pathlib.Path(os.environ.get("LOCKSTEP_BUILD", ROOT / "build")) / "bin"
LAUNCHER_VARIABLES = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


def processes_with(marker):
    """Pids whose environment holds `marker`: nothing a job has started may be left when it has ended."""
    found = []
    for folder in pathlib.Path("/proc").iterdir():
        if not folder.name.isdigit() or int(folder.name) == os.getpid():
            continue
        try:
            if marker in (folder / "environ").read_bytes() and "Z" not in (folder / "stat").read_text().rsplit(")", 1)[1].split()[0]:
                found.append(int(folder.name))
        except (OSError, IndexError):
            continue
    return found


# For what is waited for and promised to nobody: a busy machine starts ranks slowly.
PATIENCE_S = 120


def wait_until(condition, seconds=PATIENCE_S, what="the condition"):
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        value = condition()
        if value:
            return value
        time.sleep(0.02)
    raise AssertionError(f"{what} did not come true within {seconds} s")


class Job:
    """One started `lockstep train`."""

    def __init__(self, process, folder, marker):
        self.process, self.folder, self.marker = process, folder, marker
        self.out = self.err = ""

    def wait(self, seconds=PATIENCE_S):
        try:
            self.out, self.err = self.process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.out, self.err = self.process.communicate()
            raise AssertionError(f"lockstep did not end within {seconds} s\n{self.out}\n{self.err}")
        return self

    @property
    def code(self):
        return self.process.returncode

    def metrics(self):
        return lines_of(self.folder / "metrics.jsonl")

    def steps(self):
        return [line["step"] for line in self.metrics() if "loss" in line]

    def workers(self):
        return [pid for pid in processes_with(self.marker) if pid != self.process.pid]

    def wait_for_step(self, step):
        wait_until(lambda: self.process.poll() is not None or (self.steps() or [0])[-1] >= step, what=f"step {step}")
        assert self.process.poll() is None, "".join(self.process.communicate())

    def send(self, number):
        self.process.send_signal(number)

    def assert_nothing_left(self):
        wait_until(lambda: not processes_with(self.marker), seconds=2, what="the end of all processes")
        pages = [p for p in pathlib.Path("/dev/shm").glob(f"lockstep-{os.getuid()}-{self.process.pid}-*")]
        assert not pages


class Heard:
    """What a job has printed so far, without waiting for more."""

    def __init__(self, job, pipe=None):
        self.pipe, self.text = (pipe or job.process.stdout).fileno(), ""
        os.set_blocking(self.pipe, False)

    def lines(self):
        try:
            self.text += os.read(self.pipe, 1 << 20).decode()
        except BlockingIOError:
            pass
        return self.text.splitlines()

    def stop(self):
        os.set_blocking(self.pipe, True)


@pytest.fixture
def start(tmp_path):
    """start(*args, **variables) -> Job, with the fake worker unless worker=None."""
    jobs = []

    def begin(*args, worker=BIN / "fake_worker", name="run", config=ROOT / "models/nano.yaml", prefix=(), **variables):
        marker = f"LOCKSTEP_TEST_MARK={tmp_path.name}-{len(jobs)}"
        environment = {k: v for k, v in os.environ.items() if k not in LAUNCHER_VARIABLES and not k.startswith(("LOCKSTEP_", "FAKE_", "SLURM_", "OMPI_"))}
        environment.update({k: str(v) for k, v in variables.items()})
        environment[marker.split("=")[0]] = marker.split("=")[1]
        if worker:
            environment["LOCKSTEP_WORKER"] = str(worker)
        naming = ["--name", name] if name else []
        command = [*prefix, str(BIN / "lockstep"), "train", "-f", str(config), "--output", str(tmp_path), *naming, *map(str, args)]
        process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        jobs.append(Job(process, tmp_path / (name or ""), marker.encode()))
        return jobs[-1]

    begin.folder = tmp_path
    yield begin
    for job in jobs:
        if job.process.poll() is None:
            job.process.send_signal(signal.SIGKILL)
            job.process.communicate()
