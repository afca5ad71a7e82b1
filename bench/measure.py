"""What the measurements share: where things are, medians, progress, and how busy the machine was with other work."""
import dataclasses
import json
import os
import pathlib
import platform
import resource
import statistics
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
BUILD = pathlib.Path(os.environ.get("LOCKSTEP_BUILD", ROOT / "build"))
LOCKSTEP = BUILD / "bin" / "lockstep"


@dataclasses.dataclass
class Row:
    """One line of the table. `value` is what the bar speaks of: a time, or a ratio."""
    name: str
    command: str
    value: float
    unit: str
    bar: float
    lower_is_better: bool
    detail: str
    raw: dict = dataclasses.field(default_factory=dict)
    group: str = ""  # what --only calls it
    others: float = 0.0  # share of all cores that other processes used meanwhile

    @property
    def met(self) -> bool:
        return self.value <= self.bar if self.lower_is_better else self.value >= self.bar


def say(text: str) -> None:
    print(f"  {text}", file=sys.stderr, flush=True)


def spread(values: list[float]) -> dict:
    return {"median": statistics.median(values), "min": min(values), "max": max(values), "all": values}


class OthersWatch:
    """How much of the machine was used by processes that are not ours: noise that medians cannot remove."""

    def __enter__(self):
        self.start = (self._busy(), self._ours(), time.monotonic())
        self.share = 0.0
        return self

    def __exit__(self, *_):
        busy, ours, now = self._busy(), self._ours(), time.monotonic()
        seconds = (now - self.start[2]) * os.cpu_count()
        self.share = max(0.0, (busy - self.start[0]) - (ours - self.start[1])) / seconds

    @staticmethod
    def _busy() -> float:
        user, nice, system, _idle, _wait, irq, soft_irq, steal = map(int, pathlib.Path("/proc/stat").read_text().split("\n")[0].split()[1:9])
        return (user + nice + system + irq + soft_irq + steal) / os.sysconf("SC_CLK_TCK")

    @staticmethod
    def _ours() -> float:
        total = 0.0
        for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN):
            usage = resource.getrusage(who)
            total += usage.ru_utime + usage.ru_stime
        return total


def clean_environment(**extra: str) -> dict:
    """Without the variables that would make `lockstep` a rank of another launcher or change its settings."""
    launcher = {"RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "OMP_NUM_THREADS"}
    kept = {k: v for k, v in os.environ.items() if k not in launcher and (not k.startswith("LOCKSTEP_") or k == "LOCKSTEP_LIBTORCH")}
    return {**kept, **extra}


def read_lines(path: pathlib.Path) -> list[dict]:
    """Whole lines of a metrics.jsonl that may still grow."""
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text().split("\n")[:-1]]


def machine() -> dict:
    model = next((line.split(":", 1)[1].strip() for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")), "?")
    import torch

    version = subprocess.run([str(LOCKSTEP), "--version"], capture_output=True, text=True).stdout.strip()  # with its commit, as it was built
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {"time": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()), "cpu": model, "cores": os.cpu_count(), "memory_gb": round(memory / 1e9),
            "python": platform.python_version(), "torch": torch.__version__, "lockstep": version}
