"""A run that someone else started, or that is over: everything about it is read from its folder."""
from __future__ import annotations

import json
import os
import pathlib
import time
from collections.abc import Iterator
from typing import Any

from .errors import LockstepError, RunFailed
from .follow import LOOK_EVERY_S, Owner, follow
from .run import Run, send_twice

NO_WORD = "its launcher ended without a word: it was killed, or the machine went down. What was saved is whole; resume() goes on from there."


class AttachedRun(Run):
    def __init__(self, folder: pathlib.Path) -> None:
        self._folder, self._owner = folder, Owner(folder)

    def _name(self) -> str:
        return str(self._folder)

    def _command(self) -> list[str]:
        return ["-f", str(self._folder / "config.yaml")]

    @property
    def folder(self) -> pathlib.Path:
        return self._folder

    @property
    def plan(self) -> dict[str, Any]:
        raise LockstepError(f"a plan is told to whoever starts a run. What {self._folder} is trained with is in its config.yaml.", 2)

    def events(self) -> Iterator[dict[str, Any]]:
        """Every line of metrics.jsonl, and those to come."""
        yield from follow(self._folder, self._owner)
        self._raise_if_failed()

    # ---- state

    @property
    def end(self) -> dict[str, Any] | None:
        return None if self._owner.is_there() else self._ending()

    @property
    def status(self) -> str:
        ending = self.end
        return "running" if ending is None else str(ending["status"])

    @property
    def said(self) -> str:
        return str((self.end or {}).get("report", ""))

    def _ending(self) -> dict[str, Any]:
        """What its launcher left; of one that was killed, what its ranks wrote."""
        try:
            ending = json.loads((self._folder / "end.json").read_text(encoding="utf-8"))
            if isinstance(ending, dict) and "status" in ending:
                return ending
        except (OSError, ValueError):
            pass
        return {"status": self._told_by_ranks() or "failed"}

    def _told_by_ranks(self) -> str | None:
        try:
            lines = (self._folder / "metrics.jsonl").read_bytes().splitlines()
        except OSError:
            return None
        for line in reversed(lines):
            if line.startswith(b'{"event":"finished"'):
                return str(json.loads(line).get("reason"))
            if line.startswith(b'{"event":"started"'):
                return None
        return None

    def _raise_if_failed(self) -> None:
        ending = self.end
        if ending is not None and ending["status"] == "failed":
            raise RunFailed(str(ending.get("report") or ending.get("error") or f"{self._folder}: {NO_WORD}").strip(), int(ending.get("exit_code") or 6), self._folder)

    # ---- its end

    def wait(self, timeout: float | None = None) -> dict[str, Any]:
        until = None if timeout is None else time.monotonic() + timeout
        while self._owner.is_there():
            if until is not None and time.monotonic() >= until:
                raise TimeoutError(f"the run still trains after {timeout} s")
            time.sleep(LOOK_EVERY_S)
        self._raise_if_failed()
        return self.end or {}

    def stop(self, timeout: float | None = None) -> dict[str, Any]:
        if self._owner.is_there():
            try:
                self.ask("stop", timeout=timeout or 600)
            except LockstepError:
                if self._owner.is_there():  # otherwise it ended on its own before it could be asked
                    raise
        return self.wait(timeout)

    def kill(self) -> None:
        if not self._owner.is_there():
            return
        pid = self._owner.pid_here()
        if pid is None:
            raise LockstepError(f"{self._folder} is trained on {self._owner.host()}: it can be ended at once only there. stop() works from anywhere.", 3)
        try:
            send_twice(lambda number: os.kill(pid, number))
        except ProcessLookupError:
            pass  # it was quicker


def attach(folder: str | os.PathLike[str]) -> Run:
    """A run that someone else started, or that is over: its metrics from the first line on, and those to come."""
    path = pathlib.Path(folder)
    if not (path / "config.yaml").exists():
        raise LockstepError(f"{path} is no run folder: it holds no config.yaml.", 2)
    return AttachedRun(path)


def resume(folder: str | os.PathLike[str], *arguments: str, detach: bool = False, **settings: Any) -> Run:
    """Goes on with the run in a folder from its newest checkpoint."""
    return attach(folder).resume(*arguments, detach=detach, **settings)
