"""Follows the metrics of a run that another process trains."""
from __future__ import annotations

import json
import os
import pathlib
import time
from collections.abc import Iterator
from typing import Any

LOOK_EVERY_S = 0.2
EXPIRE_S = 60  # an owner on another machine that renews nothing for so long has lost the run


class Owner:
    """Who trains a run: the file `lease` in its folder, a counter that is renewed and a line about the process."""

    def __init__(self, folder: pathlib.Path) -> None:
        self._path = folder / "lease"
        self._seen, self._since = "", 0.0

    def is_there(self) -> bool:
        try:
            counter, holder = self._read()
        except OSError:
            return False  # given back
        if _can_be_looked_at(holder):
            return _start_ticks(holder.get("pid")) == holder.get("start_ticks")
        if counter != self._seen:
            self._seen, self._since = counter, time.monotonic()
        return time.monotonic() - self._since < EXPIRE_S

    def pid_here(self) -> int | None:
        """Its process, where that can be reached from here."""
        try:
            _, holder = self._read()
        except OSError:
            return None
        ours = _can_be_looked_at(holder) and _start_ticks(holder.get("pid")) == holder.get("start_ticks")
        return int(holder["pid"]) if ours else None

    def host(self) -> str:
        try:
            return str(self._read()[1].get("host", "another machine"))
        except OSError:
            return "another machine"

    def _read(self) -> tuple[str, dict[str, Any]]:
        """Of a file that is being written, or damaged, nothing is known: only a change tells that its owner lives."""
        text = self._path.read_text(errors="replace")
        counter, _, line = text.partition("\n")
        try:
            holder = json.loads(line)
        except ValueError:
            holder = None
        return (counter, holder) if isinstance(holder, dict) else (text, {})


def _can_be_looked_at(holder: dict[str, Any]) -> bool:
    """Process numbers mean the same only under one kernel and in one namespace, and another user's may be hidden (hidepid)."""
    try:
        boot = pathlib.Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        here = (boot, os.readlink("/proc/self/ns/pid"))
    except OSError:
        return False  # a container that does not say
    return (holder.get("boot"), holder.get("pid_namespace")) == here and not _is_hidden(holder.get("pid"))


def _is_hidden(pid: object) -> bool:
    """Whether there is such a process that may not be looked at: a signal still tells."""
    if not isinstance(pid, int) or os.path.exists(f"/proc/{pid}/stat"):
        return False
    try:
        os.kill(pid, 0)
    except PermissionError:
        return True
    except (OSError, OverflowError):
        pass
    return False


def _start_ticks(pid: object) -> int | None:
    """When a process began; None where it is gone, or dead and waits for its parent."""
    try:
        fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in "ZX" else int(fields[19])


def _parsed(line: bytes) -> dict[str, Any] | None:
    """None of a line that a power cut or a full disk has damaged."""
    try:
        event = json.loads(line)
    except ValueError:
        return None
    return event if isinstance(event, dict) else None


def follow(folder: pathlib.Path, owner: Owner | None = None) -> Iterator[dict[str, Any]]:
    """Every line of metrics.jsonl, then those that come for as long as the run is trained. A run that is started again replaces the file
    by one that begins with the lines it builds on: those are not told twice."""
    path, owner = folder / "metrics.jsonl", owner or Owner(folder)
    told: list[int] = []  # hashes of lines
    known: list[int] = []  # those of the file before this one
    at, identity, rest, before = 0, None, b"", 0  # before: those of them that this file is still to repeat
    while True:
        lives = owner.is_there()  # before reading, so that the last lines are not missed
        try:
            with path.open("rb") as file:
                status = os.fstat(file.fileno())
                if identity != (identity := status.st_ino) or status.st_size < at:  # a number may come again; then it is shorter
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
            if len(told) >= before and (event := _parsed(line)) is not None:
                yield event
            told.append(mark)
        if not lives:
            return
        time.sleep(LOOK_EVERY_S)
