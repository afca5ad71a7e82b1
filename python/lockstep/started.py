"""A run that this process started: its events come through a pipe, and it ends with this process unless it was detached."""
from __future__ import annotations

import atexit
import collections
import json
import os
import pathlib
import signal
import subprocess
import threading
import weakref
from collections.abc import Iterable, Iterator
from typing import Any

from .distributed import get_rank, get_world_size
from .errors import LockstepError, RunFailed
from .program import open_program, words_of
from .run import Run, send_twice


class StartedRun(Run):
    def __init__(self, process: subprocess.Popen[str], command: list[str], detach: bool) -> None:
        self._process, self._words, self._detached = process, command, detach
        self._folder: pathlib.Path | None = None
        self._events: list[dict[str, Any]] = []
        self._news, self._over = threading.Condition(), False
        self._said: collections.deque[str] = collections.deque(maxlen=400)  # the last lines of standard error
        _living.add(self)
        self._listener = threading.Thread(target=self._hear, daemon=True)
        self._listener.start()
        threading.Thread(target=self._read, daemon=True).start()

    def _name(self) -> str:
        return str(self._folder or "(starting)")

    def _command(self) -> list[str]:
        return self._words

    # ---- reading

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            try:
                event = json.loads(line)
            except ValueError:
                self._said.append(line)
                continue
            with self._news:
                if event.get("event") == "plan":
                    self._folder = pathlib.Path(event["run"])
                self._events.append(event)
                self._news.notify_all()
        self._process.wait()
        if self._process.stdin is not None:
            self._process.stdin.close()
        self._listener.join()
        with self._news:
            self._over = True
            self._news.notify_all()

    def _hear(self) -> None:
        assert self._process.stderr is not None
        for line in self._process.stderr:
            self._said.append(line)

    def events(self) -> Iterator[dict[str, Any]]:
        """Every event, as it comes; the plan is the first."""
        at = 0
        while True:
            with self._news:
                self._news.wait_for(lambda: len(self._events) > at or self._over)
                fresh, over = self._events[at:], self._over
            at += len(fresh)
            yield from fresh
            if over and not fresh:
                self._raise_if_failed()
                return

    # ---- state

    @property
    def folder(self) -> pathlib.Path:
        if self._folder is None:
            with self._news:
                self._news.wait_for(lambda: self._folder is not None or self._over)
        if self._folder is None:
            self._raise_if_failed()
            raise LockstepError(self._unheard("had a folder"), 6)
        return self._folder

    @property
    def plan(self) -> dict[str, Any]:
        for event in self.events():
            if event.get("event") == "plan":
                return event
        raise LockstepError(self._unheard("was planned"), 6)

    @staticmethod
    def _unheard(what: str) -> str:
        if get_rank() > 0:
            return f"of a launcher's processes only rank 0 hears of the run, and this is rank {get_rank()}: ask where is_main_process()."
        return f"the run ended before it {what}."

    @property
    def end(self) -> dict[str, Any] | None:
        return next((event for event in reversed(self._events) if event.get("event") == "end"), None)

    @property
    def status(self) -> str:
        if not self._over:
            return "running"
        if self.end:
            return str(self.end["status"])
        return "failed" if self._process.returncode else "complete"

    @property
    def said(self) -> str:
        return "".join(self._said)

    def _raise_if_failed(self) -> None:
        if not self._over or (self.end and self.end["status"] != "failed") or self._process.returncode == 0:
            return
        raise RunFailed(self.said.strip() or f"lockstep train ended with {self._process.returncode}.", self._process.returncode, self._folder)

    # ---- its end

    def wait(self, timeout: float | None = None) -> dict[str, Any]:
        with self._news:
            if not self._news.wait_for(lambda: self._over, timeout):
                raise TimeoutError(f"the run still trains after {timeout} s")
        self._raise_if_failed()
        return self.end or {}

    def stop(self, timeout: float | None = None) -> dict[str, Any]:
        if not self._over:
            self._process.send_signal(signal.SIGTERM)
        return self.wait(timeout)

    def kill(self) -> None:
        if self._process.poll() is None:
            send_twice(self._process.send_signal)


_living: weakref.WeakSet[StartedRun] = weakref.WeakSet()


def _forget_all() -> None:
    """A process that was forked from here has started none of them. A run ends with the last one that holds its input open."""
    for run in list(_living):
        if run._process.stdin is not None:
            run._process.stdin.close()
    _living.clear()


os.register_at_fork(after_in_child=_forget_all)


@atexit.register
def _stop_all() -> None:
    """What this process started is saved and ended with it. Where it is killed, the end of a run's input tells."""
    for run in [run for run in _living if not run._over and not run._detached]:
        run._process.send_signal(signal.SIGTERM)
        run._process.wait()


def without_resume(command: list[str]) -> list[str]:
    kept, skip = [], False
    for word in command:
        if skip:
            skip = False
        elif word in ("--resume", "--name", "--output"):
            skip = True
        elif not word.startswith(("--resume=", "--name=", "--output=")):
            kept.append(word)
    return kept


def start(*words: Iterable[str | os.PathLike[str]], env: dict[str, Any] | None = None, detach: bool = False) -> StartedRun:
    command = [str(word) for group in words for word in group]
    # A session of its own: Ctrl-C is for this process, which decides what becomes of the run.
    if get_world_size() > 1:  # ranks of one launcher know each other by its process, which is not theirs but this one's parent
        env = {"LOCKSTEP_LAUNCHER_PID": os.getppid(), **(env or {})}
    tie: list[str] = [] if detach else ["--stop-with-stdin"]
    process = open_program("train", *command, "--headless", *tie, env=env, stdin=subprocess.DEVNULL if detach else subprocess.PIPE,
                           stderr=subprocess.PIPE, start_new_session=True)
    return StartedRun(process, command, detach)


def train(config: str | os.PathLike[str] | dict[str, Any] | None = None, *arguments: str, env: dict[str, Any] | None = None, detach: bool = False,
          **settings: Any) -> Run:
    """Starts `lockstep train` and comes back at once. The run is saved and ended with this process; one with detach=True trains on.

    config: a run file (those that come along too: "models/nano.yaml"), or a dict of sections. arguments: words as on the command line.
    settings: any setting by its flag or full name, train(..., max_steps=20, **{"trainer.seed": 7}).
    """
    file = []
    if isinstance(config, dict):
        from .data import keep
        file = ["-f", str(keep(json.dumps(config, indent=1) + "\n", "settings", ".json"))]
    elif config is not None:
        file = ["-f", os.fspath(config)]
    return start(file, arguments, words_of(settings), env=env, detach=detach)
