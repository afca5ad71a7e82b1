"""What hears of a training as it goes: callbacks in Hugging Face's shape, a progress bar, a plot of the loss in notebooks."""
from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TextIO

from .plot import loss_svg

if TYPE_CHECKING:
    from .arguments import TrainingArguments
    from .trainer import TrainerState

Line = dict[str, Any]


class TrainerControl:
    """What a callback may ask for. Each is carried out by all ranks after the same step."""

    def __init__(self) -> None:
        self.should_training_stop = self.should_save = self.should_evaluate = False


MOMENTS = ("on_train_begin", "on_step_end", "on_log", "on_evaluate", "on_save", "on_train_end")


class TrainerCallback:
    """Any of these may be overridden. `logs` is the line of metrics; what a callback sets in `control` is asked of the run."""

    def on_train_begin(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None: ...
    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None: ...
    def on_log(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, logs: Line | None = None, **kwargs: Any) -> None: ...
    def on_evaluate(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, metrics: Line | None = None, **kwargs: Any) -> None: ...
    def on_save(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None: ...
    def on_train_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None: ...


class FunctionCallback(TrainerCallback):
    """A plain function, called with each line of a step."""

    def __init__(self, function: Callable[[Line], object]) -> None:
        self.function = function

    def on_log(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, logs: Line | None = None, **kwargs: Any) -> None:
        self.function(logs or {})


def in_notebook() -> bool:
    """Whether output goes to a notebook; only where IPython is at work already."""
    shell = sys.modules.get("IPython") and sys.modules["IPython"].get_ipython()
    return bool(shell) and hasattr(shell, "kernel")


def _tqdm() -> Any:
    try:
        from tqdm import tqdm  # type: ignore[import-untyped, unused-ignore]
        return tqdm
    except ImportError:
        return None


class NotebookBar:
    """A bar under the cell, in plain HTML: it needs no widgets, and stays in the notebook when that is saved."""

    def __init__(self, total: int | None, initial: int = 0) -> None:
        from IPython.display import HTML, display
        self._html, self.total, self.n, self._words, self._began, self._first, self._drawn_at = HTML, total, initial, "", time.monotonic(), initial, 0.0
        self._shown = display(self._drawn(), display_id=True)

    def set_postfix(self, words: dict[str, str], refresh: bool = True) -> None:
        self._words = ", ".join(f"{name} {value}" for name, value in words.items())

    def update(self, steps: int) -> None:
        self.n += steps
        if time.monotonic() - self._drawn_at > 0.2:
            self._draw()

    def close(self) -> None:
        self._draw()

    def _draw(self) -> None:
        self._shown.update(self._drawn())
        self._drawn_at = time.monotonic()

    def _drawn(self) -> Any:
        seconds = time.monotonic() - self._began
        left = seconds / (self.n - self._first) * (self.total - self.n) if self.total and self.n > self._first else None
        times = f"{_clock(seconds)}{'' if left is None else f' &lt; {_clock(left)}'}"
        share = f'value="{self.n}" max="{self.total}"' if self.total else ""
        return self._html(f'<progress {share} style="width:300px"></progress> step {self.n}/{self.total or "?"} [{times}] {self._words}')


def _clock(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02}:{rest:02}" if minutes >= 60 else f"{minutes}:{rest:02}"


class ProgressCallback(TrainerCallback):
    """A bar in notebooks, and in terminals where tqdm is there; a line now and then otherwise."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self.stream, self.next_share = stream or sys.stderr, 0.0
        self.bar: Any = None

    def on_train_begin(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        self.next_share = 0.0
        if in_notebook():
            self.bar = NotebookBar(state.max_steps or None, state.global_step)
        elif self.stream.isatty() and (tqdm := _tqdm()) is not None:
            self.bar = tqdm(total=state.max_steps or None, initial=state.global_step, unit="step", file=self.stream)

    def on_log(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, logs: Line | None = None, **kwargs: Any) -> None:
        logs = logs or {}
        if self.bar is not None:
            self.bar.total = state.max_steps or None
            self.bar.set_postfix({"loss": _short(logs.get("loss")), "tokens/s": f"{logs.get('tokens_per_second') or 0:.0f}"}, refresh=False)
            self.bar.update(state.global_step - self.bar.n)
            return
        share = state.global_step / state.max_steps if state.max_steps else 0
        if share >= self.next_share:
            self.next_share = share + 0.1
            print(f"step {state.global_step}/{state.max_steps or '?'}  loss {_short(logs.get('loss'))}", file=self.stream, flush=True)

    def on_train_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        if self.bar is not None:
            self.bar.close()
            self.bar = None


def _short(loss: float | None) -> str:
    return "not finite" if loss is None else f"{loss:.4f}"


class PlotCallback(TrainerCallback):
    """The loss as a curve under the cell, drawn anew while it trains; nothing outside a notebook."""

    def __init__(self, points: int = 400) -> None:
        self.points, self.drawn_at = points, 0.0
        self.shown: Any = None

    def on_train_begin(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        if in_notebook():
            from IPython.display import SVG, display
            self.shown = display(SVG(loss_svg(state.log_history, self.points)), display_id=True)

    def on_log(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, logs: Line | None = None, **kwargs: Any) -> None:
        if self.shown is not None and time.monotonic() - self.drawn_at > 1:
            self._draw(state)

    def on_train_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        if self.shown is not None:
            self._draw(state)

    def _draw(self, state: TrainerState) -> None:
        from IPython.display import SVG
        self.shown.update(SVG(loss_svg(state.log_history, self.points)))
        self.drawn_at = time.monotonic()
