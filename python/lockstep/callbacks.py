"""What hears of a training as it goes: callbacks in Hugging Face's shape, a progress bar, a plot of the loss in notebooks."""
import sys

from .plot import loss_svg


class TrainerControl:
    """What a callback may ask for. Each is carried out by all ranks after the same step."""

    def __init__(self):
        self.should_training_stop = self.should_save = self.should_evaluate = False


class TrainerCallback:
    """Any of these may be overridden. `logs` is the line of metrics; what a callback sets in `control` is asked of the run."""

    def on_train_begin(self, args, state, control, **kwargs): ...
    def on_step_end(self, args, state, control, **kwargs): ...
    def on_log(self, args, state, control, logs=None, **kwargs): ...
    def on_evaluate(self, args, state, control, metrics=None, **kwargs): ...
    def on_save(self, args, state, control, **kwargs): ...
    def on_train_end(self, args, state, control, **kwargs): ...


class FunctionCallback(TrainerCallback):
    """A plain function, called with each line of a step."""

    def __init__(self, function):
        self.function = function

    def on_log(self, args, state, control, logs=None, **kwargs):
        self.function(logs)


def in_notebook() -> bool:
    """Whether output goes to a notebook; only where IPython is at work already."""
    shell = sys.modules.get("IPython") and sys.modules["IPython"].get_ipython()
    return bool(shell) and hasattr(shell, "kernel")


def _tqdm():
    try:
        if in_notebook():
            from tqdm.notebook import tqdm
        else:
            from tqdm import tqdm
        return tqdm
    except ImportError:
        return None


class ProgressCallback(TrainerCallback):
    """A bar where tqdm is there and someone looks; a line now and then otherwise."""

    def __init__(self, stream=None):
        self.stream, self.bar, self.next_share = stream or sys.stderr, None, 0.0

    def on_train_begin(self, args, state, control, **kwargs):
        tqdm = _tqdm()
        if tqdm is not None and (in_notebook() or self.stream.isatty()):
            self.bar = tqdm(total=state.max_steps or None, initial=state.global_step, unit="step", file=None if in_notebook() else self.stream)

    def on_log(self, args, state, control, logs=None, **kwargs):
        if self.bar is not None:
            self.bar.total = state.max_steps or None
            self.bar.set_postfix({"loss": _short(logs.get("loss")), "tokens/s": f"{logs.get('tokens_per_second') or 0:.0f}"}, refresh=False)
            self.bar.update(state.global_step - self.bar.n)
            return
        share = state.global_step / state.max_steps if state.max_steps else 0
        if share >= self.next_share:
            self.next_share = share + 0.1
            print(f"step {state.global_step}/{state.max_steps or '?'}  loss {_short(logs.get('loss'))}", file=self.stream, flush=True)

    def on_train_end(self, args, state, control, **kwargs):
        if self.bar is not None:
            self.bar.close()


def _short(loss) -> str:
    return "not finite" if loss is None else f"{loss:.4f}"


class PlotCallback(TrainerCallback):
    """The loss as a curve under the cell, drawn anew while it trains; nothing outside a notebook."""

    def __init__(self, points=400):
        self.points, self.shown, self.drawn_at = points, None, 0.0

    def on_train_begin(self, args, state, control, **kwargs):
        if in_notebook():
            from IPython.display import SVG, display
            self.shown = display(SVG(loss_svg(state.log_history, self.points)), display_id=True)

    def on_log(self, args, state, control, logs=None, **kwargs):
        import time
        if self.shown is not None and time.monotonic() - self.drawn_at > 1:
            self._draw(state)

    def on_train_end(self, args, state, control, **kwargs):
        if self.shown is not None:
            self._draw(state)

    def _draw(self, state):
        import time
        from IPython.display import SVG
        self.shown.update(SVG(loss_svg(state.log_history, self.points)))
        self.drawn_at = time.monotonic()
