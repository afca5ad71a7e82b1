"""Lockstep from Python: trains and fine-tunes language models on every GPU, out of process.

    import lockstep
    run = lockstep.train("models/nano.yaml", max_steps=20)
    for line in run:                      # metrics as they come
        print(line["step"], line["loss"])
    print(run.generate("Once upon a time"))

`lockstep.Trainer`, `lockstep.SFTTrainer` and `lockstep.FastLanguageModel` have the shapes people know from Hugging Face and Unsloth.
Everything is done by the program `lockstep`, which comes with this package; nothing here imports torch.
"""
from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # X as X: part of what this package offers
    from . import distributed as distributed
    from .arguments import SFTConfig as SFTConfig, TrainingArguments as TrainingArguments
    from .attached import attach as attach, resume as resume
    from .callbacks import PlotCallback as PlotCallback, ProgressCallback as ProgressCallback, TrainerCallback as TrainerCallback, TrainerControl as TrainerControl
    from .chat import Chat as Chat
    from .errors import ArgumentsRefused as ArgumentsRefused, LockstepError as LockstepError, RunFailed as RunFailed
    from .model import FastLanguageModel as FastLanguageModel, Model as Model, is_bfloat16_supported as is_bfloat16_supported
    from .run import Checkpoint as Checkpoint, Run as Run
    from .started import train as train
    from .text import Completion as Completion, generate as generate
    from .trainer import SFTTrainer as SFTTrainer, Trainer as Trainer, TrainerState as TrainerState, TrainOutput as TrainOutput
    from .trainer import train_on_responses_only as train_on_responses_only

    __version__: str

# Imported when they are asked for: the command `lockstep` is a call of this package, and should start at once.
_HOME = {
    "LockstepError": "errors", "RunFailed": "errors", "ArgumentsRefused": "errors",
    "Run": "run", "Checkpoint": "run", "train": "started", "attach": "attached", "resume": "attached",
    "generate": "text", "Completion": "text", "Chat": "chat",
    "TrainingArguments": "arguments", "SFTConfig": "arguments",
    "Trainer": "trainer", "SFTTrainer": "trainer", "TrainOutput": "trainer", "TrainerState": "trainer",
    "TrainerCallback": "callbacks", "TrainerControl": "callbacks", "ProgressCallback": "callbacks", "PlotCallback": "callbacks",
    "FastLanguageModel": "model", "Model": "model", "is_bfloat16_supported": "model", "train_on_responses_only": "trainer",
}
__all__ = [*_HOME, "distributed", "__version__"]


if not TYPE_CHECKING:  # so that checkers and editors know a name that there is not
    def __getattr__(name: str) -> Any:
        if name in _HOME:
            return getattr(importlib.import_module(f".{_HOME[name]}", __name__), name)
        if name == "distributed":
            return importlib.import_module(".distributed", __name__)
        if name == "__version__":
            from .program import version
            return version()["version"]
        raise AttributeError(f"lockstep has no {name}")


def __dir__() -> list[str]:
    return sorted(__all__)
