"""Follows the metrics of a run that another process trains."""
import json
import os
import pathlib
import time

LOOK_EVERY_S = 0.2
EXPIRE_S = 60  # an owner on another machine that renews nothing for so long has lost the run


class Owner:
    """Who trains a run: the file `lease` in its folder, a counter that is renewed and a line about the process."""

    def __init__(self, folder: pathlib.Path):
        self._path, self._seen, self._since = folder / "lease", None, 0.0

    def is_there(self) -> bool:
        try:
            counter, text = self._path.read_text().split("\n", 1)
            holder = json.loads(text)
        except OSError:
            return False  # given back
        except ValueError:
            return True  # being written
        if (holder.get("boot"), holder.get("pid_namespace")) == (_boot(), _pid_namespace()):
            return _start_ticks(holder.get("pid")) == holder.get("start_ticks")
        if counter != self._seen:
            self._seen, self._since = counter, time.monotonic()
        return time.monotonic() - self._since < EXPIRE_S


def _boot() -> str:
    return pathlib.Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def _pid_namespace() -> str:
    return os.readlink("/proc/self/ns/pid")


def _start_ticks(pid) -> int | None:
    """When a process began; None where it is gone, or dead and waits for its parent."""
    try:
        fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in "ZX" else int(fields[19])


def follow(folder: pathlib.Path):
    """Every line of metrics.jsonl, then those that come for as long as the run is trained. A run that is started again replaces the file
    by one that begins with the lines it builds on: those are not told twice."""
    path, owner = folder / "metrics.jsonl", Owner(folder)
    told, at, identity, rest, before = [], 0, None, b"", 0  # told: hashes of lines; before: those of them that this file is still to repeat
    while True:
        lives = owner.is_there()  # before reading, so that the last lines are not missed
        try:
            with path.open("rb") as file:
                if identity != (identity := os.fstat(file.fileno()).st_ino):
                    at, rest, before = 0, b"", len(told)
                    known, told = told, []
                file.seek(at)
                fresh = file.read()
                at += len(fresh)
        except FileNotFoundError:
            fresh = b""
        *lines, rest = (rest + fresh).split(b"\n")
        for line in lines:
            mark = hash(line)
            if len(told) < before and known[len(told)] != mark:
                before = 0  # from here on it is another past
            if len(told) >= before:
                yield json.loads(line)
            told.append(mark)
        if not lives:
            return
        time.sleep(LOOK_EVERY_S)
