"""A run: followed as it trains, asked for things, stopped, gone on with. Who started it makes no difference to what is here."""
from __future__ import annotations

import abc
import dataclasses
import json
import pathlib
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from .errors import LockstepError
from .program import call, lines_of, words_of

if TYPE_CHECKING:
    from .text import Prompt


@dataclasses.dataclass(frozen=True)
class Checkpoint:
    step: int
    path: pathlib.Path


class Run(abc.ABC):
    """A run of `lockstep train`. Made by train(), resume() and attach().

    Iterating gives every line of metrics from the first on, waits for those to come, and ends with the run; several loops may go over
    the same run. A line is a dict: of a step (`step`, `loss`, `learning_rate`, `tokens_per_second`, ...) or an evaluation (`eval_loss`, ...).
    events() gives all there is: checkpoints, samples and notes too. A run that fails raises RunFailed at the end of the loop.
    """

    def __repr__(self) -> str:
        return f"<lockstep.Run {self._name()} {self.status}>"

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return (event for event in self.events() if "loss" in event or "eval_loss" in event)

    # ---- what differs between a run of this process and one that someone else started

    @abc.abstractmethod
    def _name(self) -> str: ...

    @abc.abstractmethod
    def _command(self) -> list[str]:
        """What follows `lockstep train`, for a start like this one."""

    @property
    @abc.abstractmethod
    def folder(self) -> pathlib.Path:
        """Where everything of the run lies; known as soon as it is planned."""

    @property
    @abc.abstractmethod
    def plan(self) -> dict[str, Any]:
        """What was decided before the start: ranks, devices, batch, steps, memory."""

    @property
    @abc.abstractmethod
    def end(self) -> dict[str, Any] | None:
        """How it ended: `status` (complete, stopped, failed, ...), `seconds`, `exit_code`; None while it trains."""

    @property
    @abc.abstractmethod
    def status(self) -> str:
        """running, complete, stopped, ended (at once, by kill()) or failed."""

    @property
    @abc.abstractmethod
    def said(self) -> str:
        """The report where a run has failed; of a run of this process, whatever the program wrote to standard error."""

    @abc.abstractmethod
    def events(self) -> Iterator[dict[str, Any]]:
        """Every event, as it comes."""

    @abc.abstractmethod
    def wait(self, timeout: float | None = None) -> dict[str, Any]:
        """Until no process of the run is left; gives `end`. Raises RunFailed where it failed, TimeoutError where it takes longer."""

    @abc.abstractmethod
    def stop(self, timeout: float | None = None) -> dict[str, Any]:
        """Finishes the step, saves and ends; resume() goes on from there. Gives `end`; nothing is done to a run that is over."""

    @abc.abstractmethod
    def kill(self) -> None:
        """Ends it at once; steps since the last checkpoint are lost."""

    # ---- by its folder

    def checkpoints(self) -> list[Checkpoint]:
        """Whole ones, oldest first, wherever `trainer.checkpoint_dir` puts them."""
        own = self.folder / "checkpoints"
        folders = [own, *(folder for folder in _told_of(self.folder / "metrics.jsonl") if folder != own.resolve())]
        found = [path for folder in folders for path in folder.glob("step-*") if (path / "manifest.json").exists() and path.name[5:].isdigit()]
        return sorted((Checkpoint(int(path.name[5:]), path) for path in found), key=lambda one: one.step)

    def ask(self, *wishes: str, timeout: float = 600) -> list[dict[str, Any]]:
        """save, evaluate, sample or stop: done by all ranks after the same step. One answer a wish: `done`, `step`, and what came of it."""
        done = call("ask", self.folder, *wishes, "--timeout", timeout, "--json", check=False)
        answers: list[dict[str, Any]] = [json.loads(line) for line in lines_of(done.stdout) if line.startswith("{")]
        if len(answers) < len(wishes):
            raise LockstepError(done.stderr.strip(), done.returncode)
        return answers

    def save(self) -> Checkpoint:
        answer = self.ask("save")[0]
        return Checkpoint(answer["step"], pathlib.Path(answer["checkpoint"]))

    def evaluate(self) -> float:
        return float(self.ask("evaluate")[0]["eval_loss"])

    def sample(self) -> list[dict[str, Any]]:
        samples: list[dict[str, Any]] = self.ask("sample")[0]["samples"]
        return samples

    def resume(self, *arguments: str, detach: bool = False, **settings: Any) -> Run:
        """Goes on from its newest checkpoint, on any number of ranks: run.resume(ranks=3). As with train(), it ends with this process unless
        it is detached."""
        from .started import start, without_resume
        return start(without_resume(self._command()), ["--output", str(self.folder.parent), "--name", self.folder.name, "--resume", "auto", *arguments],
                     words_of(settings), detach=detach)

    def generate(self, prompts: Prompt | Sequence[Prompt], **settings: Any) -> Any:
        """Text by its newest checkpoint; see lockstep.generate."""
        from .text import generate
        return generate(prompts, run=self.folder, **settings)


def send_twice(send: Callable[[int], None]) -> None:
    """To a launcher, which ends at once when it is asked twice. Two signals of one kind at the same moment would be one."""
    send(signal.SIGTERM)
    time.sleep(0.05)
    send(signal.SIGTERM)


def _told_of(metrics: pathlib.Path) -> set[pathlib.Path]:
    """Folders in which the run said that it saved. Lines may be damaged, or half written."""
    folders = set()
    try:
        with metrics.open("rb") as lines:
            for line in lines:
                if b'"event":"checkpoint"' not in line:
                    continue
                try:
                    folders.add(pathlib.Path(json.loads(line)["path"]).parent.resolve())
                except (ValueError, KeyError, TypeError):
                    continue
    except OSError:
        pass
    return folders
