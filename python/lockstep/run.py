"""A run: started, followed as it trains, asked for things, stopped, gone on with."""
import atexit
import collections
import dataclasses
import json
import pathlib
import signal
import subprocess
import threading
import time
import weakref

from .errors import LockstepError, RunFailed
from .follow import follow
from .program import call, environment, find_program, words_of


@dataclasses.dataclass(frozen=True)
class Checkpoint:
    step: int
    path: pathlib.Path


class Run:
    """A run of `lockstep train`. Made by train(), resume() and attach().

    Iterating gives every line of metrics from the first on, waits for those to come, and ends with the run; several loops may go over
    the same run. A line is a dict: of a step (`step`, `loss`, `learning_rate`, `tokens_per_second`, ...) or an evaluation (`eval_loss`, ...).
    events() gives all there is: the plan, checkpoints, samples and notes too. A run that fails raises RunFailed at the end of the loop.
    """

    def __init__(self, folder=None, process=None, command=()):
        self._folder = pathlib.Path(folder) if folder else None
        self._process = process
        self._command = list(command)  # what follows `lockstep train`
        self._events, self._news, self._over = [], threading.Condition(), False
        self._said = collections.deque(maxlen=400)  # the last lines of standard error
        if process is not None:
            _living.add(self)
            self._listener = threading.Thread(target=self._hear, daemon=True)
            self._listener.start()
            threading.Thread(target=self._read, daemon=True).start()

    def __repr__(self):
        return f"<lockstep.Run {self._folder or '(starting)'} {self.status}>"

    # ---- reading

    def _read(self):
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
        self._listener.join()
        with self._news:
            self._over = True
            self._news.notify_all()

    def _hear(self):
        for line in self._process.stderr:
            self._said.append(line)

    def events(self):
        """Every event, as it comes."""
        if self._process is None:
            yield from follow(self.folder)
            return
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

    def __iter__(self):
        return (event for event in self.events() if "loss" in event or "eval_loss" in event)

    # ---- state

    @property
    def folder(self) -> pathlib.Path:
        """Where everything of the run lies; known as soon as it is planned."""
        if self._folder is None:
            with self._news:
                self._news.wait_for(lambda: self._folder is not None or self._over)
            if self._folder is None:
                self._raise_if_failed()
                raise LockstepError("the run ended before it had a folder.", 6)
        return self._folder

    @property
    def plan(self) -> dict:
        """What was decided before the start: ranks, devices, batch, steps, memory."""
        return next(event for event in self.events() if event.get("event") == "plan")

    @property
    def end(self) -> dict | None:
        """How it ended: `status` (complete, stopped, failed, ...), `seconds`, `exit_code`; None while it trains."""
        return next((event for event in reversed(self._events) if event.get("event") == "end"), None)

    @property
    def status(self) -> str:
        if self._process is None:
            return "followed"
        if not self._over:
            return "running"
        return self.end["status"] if self.end else "failed" if self._process.returncode else "complete"

    @property
    def said(self) -> str:
        """What the program wrote to standard error: the report where a run has failed."""
        return "".join(self._said)

    def wait(self, timeout: float | None = None) -> dict:
        """Until no process of the run is left; gives `end`. Raises RunFailed where it failed, TimeoutError where it takes longer."""
        if self._process is None:
            collections.deque(self.events(), maxlen=0)
            return {}
        with self._news:
            if not self._news.wait_for(lambda: self._over, timeout):
                raise TimeoutError(f"the run still trains after {timeout} s")
        self._raise_if_failed()
        return self.end or {}

    def _raise_if_failed(self):
        if self._process is None or not self._over or (self.end and self.end["status"] != "failed") or self._process.returncode == 0:
            return
        raise RunFailed(self.said.strip() or f"lockstep train ended with {self._process.returncode}.", self._process.returncode, self._folder)

    def checkpoints(self) -> list[Checkpoint]:
        """Whole ones, oldest first."""
        found = [path for path in (self.folder / "checkpoints").glob("step-*") if (path / "manifest.json").exists() and path.name[5:].isdigit()]
        return sorted((Checkpoint(int(path.name[5:]), path) for path in found), key=lambda one: one.step)

    # ---- steering

    def ask(self, *wishes: str, timeout: float = 600) -> list[dict]:
        """save, evaluate, sample or stop: done by all ranks after the same step. One answer a wish: `done`, `step`, and what came of it."""
        done = call("ask", self.folder, *wishes, "--timeout", timeout, "--json", check=False)
        answers = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
        if len(answers) < len(wishes):
            raise LockstepError(done.stderr.strip(), done.returncode)
        return answers

    def save(self) -> Checkpoint:
        answer = self.ask("save")[0]
        return Checkpoint(answer["step"], pathlib.Path(answer["checkpoint"]))

    def evaluate(self) -> float:
        return self.ask("evaluate")[0]["eval_loss"]

    def sample(self) -> list[dict]:
        return self.ask("sample")[0]["samples"]

    def stop(self, timeout: float | None = None) -> dict:
        """Finishes the step, saves and ends; resume() goes on from there. Nothing is done to a run that is over."""
        if self._process is None:
            return self.ask("stop", timeout=timeout or 600)[0]
        if not self._over:
            self._process.send_signal(signal.SIGTERM)
        return self.wait(timeout)

    def kill(self) -> None:
        """Ends it at once; steps since the last checkpoint are lost."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
            time.sleep(0.05)
            self._process.send_signal(signal.SIGTERM)

    def resume(self, *arguments: str, **settings) -> "Run":
        """Goes on from its newest checkpoint, on any number of ranks: run.resume(ranks=3)."""
        command = self._command or ["-f", str(self.folder / "config.yaml")]
        return start(without_resume(command), ["--output", str(self.folder.parent), "--name", self.folder.name, "--resume", "auto", *arguments],
                     words_of(settings))

    def generate(self, prompts, **settings):
        """Text by its newest checkpoint; see lockstep.generate."""
        from .text import generate
        return generate(prompts, run=self.folder, **settings)


_living = weakref.WeakSet()


@atexit.register
def _stop_all():
    """What this process started is saved and ended with it."""
    for run in [run for run in _living if not run._over]:
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


def start(*words, env: dict | None = None) -> Run:
    command = [str(word) for group in words for word in group]
    # A session of its own: Ctrl-C is for this process, which decides what becomes of the run.
    process = subprocess.Popen([str(find_program()), "train", *command, "--headless"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                               encoding="utf-8", errors="replace", env=environment(env), stdin=subprocess.DEVNULL, start_new_session=True)
    return Run(process=process, command=command)


def train(config=None, *arguments: str, env: dict | None = None, **settings) -> Run:
    """Starts `lockstep train` and comes back at once.

    config: a run file (those that come along too: "models/nano.yaml"), or a dict of sections. arguments: words as on the command line.
    settings: any setting by its flag or full name, train(..., max_steps=20, **{"trainer.seed": 7}).
    """
    file = []
    if isinstance(config, dict):
        from .data import keep
        file = ["-f", str(keep(json.dumps(config, indent=1) + "\n", "settings", ".json"))]
    elif config is not None:
        file = ["-f", str(config)]
    return start(file, arguments, words_of(settings), env=env)


def attach(folder) -> Run:
    """A run that someone else started, or that is over: its metrics from the first line on, and those to come."""
    folder = pathlib.Path(folder)
    if not (folder / "config.yaml").exists():
        raise LockstepError(f"{folder} is no run folder: it holds no config.yaml.", 2)
    return Run(folder)


def resume(folder, *arguments: str, **settings) -> Run:
    """Goes on with the run in a folder from its newest checkpoint."""
    return attach(folder).resume(*arguments, **settings)
