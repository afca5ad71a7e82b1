"""What the cases of the GPU suite share: commands with deadlines and a log, runs of `lockstep train`, comparisons."""
import dataclasses
import hashlib
import importlib.util
import json
import math
import os
import pathlib
import struct
import subprocess
import time
from typing import Callable

ROOT = pathlib.Path(__file__).resolve().parents[2]


class Problem(Exception):
    """A case failed; the text says how."""


class Skip(Exception):
    """A case cannot be tried on this machine; the text says why."""


@dataclasses.dataclass(frozen=True)
class Case:
    name: str
    seconds: float  # about what it takes on an H200: decides whether it still fits a budget
    work: Callable  # work(suite) -> a note for the table, or None


@dataclasses.dataclass
class Run:
    """A finished `lockstep train`."""
    folder: pathlib.Path

    def losses(self) -> list[float]:
        lines = [json.loads(line) for line in (self.folder / "metrics.jsonl").read_text().splitlines()]
        return [line["loss"] for line in lines if "loss" in line]

    def summary(self) -> dict:
        return json.loads((self.folder / "summary.json").read_text())

    def checkpoint(self, step: int) -> pathlib.Path:
        return self.folder / "checkpoints" / f"step-{step:06}"

    def tensors(self, step: int) -> dict[str, bytes]:
        """Every tensor of a checkpoint, weights and moments, as bytes."""
        return tensors_in(self.checkpoint(step))


def tensors_in(folder: pathlib.Path) -> dict[str, bytes]:
    found = {}
    for path in sorted(folder.glob("*.safetensors")):
        data = path.read_bytes()
        (size,) = struct.unpack("<Q", data[:8])
        kind = path.name.split("-")[0].split(".")[0]
        for name, about in json.loads(data[8:8 + size]).items():
            if name != "__metadata__":
                begin, end = about["data_offsets"]
                found[f"{kind}/{name}"] = data[8 + size + begin:8 + size + end]
    if not found:
        raise Problem(f"{folder} holds no tensors")
    return found


def expect_same_bytes(what: str, ours: dict[str, bytes], theirs: dict[str, bytes]) -> str:
    if ours.keys() != theirs.keys():
        raise Problem(f"{what}: other tensors: {sorted(ours.keys() ^ theirs.keys())[:5]}")
    different = [name for name in ours if ours[name] != theirs[name]]
    if different:
        raise Problem(f"{what}: {len(different)} of {len(ours)} tensors differ, first {sorted(different)[:3]}")
    return f"{len(ours)} tensors, bit for bit"


def expect_close(what: str, ours: list[float], theirs: list[float], tolerance: float) -> str:
    """Each loss relative to the other's; the note tells the worst."""
    if len(ours) != len(theirs):
        raise Problem(f"{what}: {len(ours)} losses, not {len(theirs)}")
    worst = max(abs(a - b) / abs(b) if math.isfinite(a) else math.inf for a, b in zip(ours, theirs))
    if not worst <= tolerance:
        raise Problem(f"{what}: losses differ by {worst:.2e}, more than {tolerance:.0e}: {ours[-3:]} and {theirs[-3:]}")
    return f"worst {worst:.1e} of {tolerance:.0e}"


def query(what: str) -> str:
    """What nvidia-smi says of the first GPU."""
    return subprocess.run(["nvidia-smi", "-i", "0", f"--query-gpu={what}", "--format=csv,noheader"], capture_output=True, text=True, check=True, timeout=30).stdout.strip()


def library_path() -> str:
    deps = sorted((ROOT / ".deps").glob("lib/python3*/site-packages/torch"))
    torch = deps[0] if deps else pathlib.Path(importlib.util.find_spec("torch").origin).parent
    folders = [torch / "lib", *sorted((torch.parent / "nvidia").glob("*/lib"))]
    return ":".join(map(str, folders))


class Suite:
    """One build on one machine. `folder` keeps what cases make, so that later ones need not make it again."""

    def __init__(self, build: pathlib.Path, folder: pathlib.Path, device: str, log: pathlib.Path):
        self.build, self.folder, self.device = build, folder, device
        self.log_path = log
        self.golden = ROOT / "tests" / "golden"
        self.deadline = math.inf
        self.skipped: list[str] = []  # tests within the case at hand
        folder.mkdir(parents=True, exist_ok=True)
        log.parent.mkdir(parents=True, exist_ok=True)
        self.log = log.open("a")

    @property
    def lockstep(self) -> str:
        return str(self.build / "bin" / "lockstep")

    def place(self) -> list[str]:
        """One rank, unless a case's own flags, which come behind, say otherwise."""
        return ["--gpus", "0"] if self.device == "cuda" else ["--device", "cpu", "--ranks", "1", "--threads", "1"]

    def build_id(self) -> str:
        """Changes with every program that a case runs."""
        digest = hashlib.sha256()
        for path in sorted([*(self.build / "bin").glob("*"), *(self.build / "lib").glob("*.so")]):
            if path.is_file():
                digest.update(path.name.encode())
                digest.update(path.read_bytes())
        return digest.hexdigest()[:16]

    def command(self, words: list, expect: int | None = 0, env: dict | None = None, timeout: float = 300) -> subprocess.CompletedProcess:
        """Runs it to its end, or to the case's deadline; keeps what it printed. expect None: any exit code."""
        words = [str(word) for word in words]
        print(f"$ {' '.join(words)}", file=self.log, flush=True)
        timeout = min(timeout, max(1.0, self.deadline - time.monotonic()))
        try:
            done = subprocess.run(words, capture_output=True, text=True, errors="replace", timeout=timeout, cwd=ROOT,
                                  env={**os.environ, "LOCKSTEP_OVERSUBSCRIBE": "1", "CUBLAS_WORKSPACE_CONFIG": ":4096:8", **(env or {})})
        except subprocess.TimeoutExpired as late:
            raise Problem(f"{' '.join(words)} did not end within {timeout:.0f} s:\n{str(late.stdout)[-2000:]}") from None
        print(done.stdout + done.stderr + f"[exit {done.returncode}]\n", file=self.log, flush=True)
        if expect is not None and done.returncode != expect:
            raise Problem(f"{' '.join(words)}\nended with {done.returncode}, not {expect}:\n{done.stdout[-2000:]}{done.stderr[-4000:]}")
        return done

    def train(self, name: str, *args, env: dict | None = None, place: list | None = None, fresh: bool = True) -> Run:
        """`lockstep train` as a run of that name; a run left by an earlier call is made anew unless it goes on."""
        run = Run(self.folder / name)
        if fresh and run.folder.exists():
            self.command(["rm", "-rf", run.folder])
        self.command([self.lockstep, "train", "--output", self.folder, "--name", name, *(self.place() if place is None else place), *args], env=env)
        return run
