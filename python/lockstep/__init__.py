"""Lockstep from Python: trains and fine-tunes language models on every GPU, out of process.

    import lockstep
    run = lockstep.train("models/nano.yaml", max_steps=20)
    for line in run:                      # metrics as they come
        print(line["step"], line["loss"])
    print(run.generate("Once upon a time"))

`lockstep.Trainer`, `lockstep.SFTTrainer` and `lockstep.FastLanguageModel` have the shapes people know from Hugging Face and Unsloth.
Everything is done by the program `lockstep`, which comes with this package; nothing here imports torch.
"""
import importlib

# Imported when they are asked for: the command `lockstep` is a call of this package, and should start at once.
_HOME = {
    "LockstepError": "errors", "RunFailed": "errors", "ArgumentsRefused": "errors",
    "Run": "run", "Checkpoint": "run", "train": "run", "attach": "run", "resume": "run",
    "generate": "text", "Completion": "text", "Chat": "chat",
    "TrainingArguments": "arguments", "SFTConfig": "arguments",
    "Trainer": "trainer", "SFTTrainer": "trainer", "TrainOutput": "trainer", "TrainerState": "trainer",
    "TrainerCallback": "callbacks", "TrainerControl": "callbacks", "ProgressCallback": "callbacks", "PlotCallback": "callbacks",
    "FastLanguageModel": "model", "Model": "model",
}
__all__ = [*_HOME, "distributed", "__version__"]


def __getattr__(name):
    if name in _HOME:
        return getattr(importlib.import_module(f".{_HOME[name]}", __name__), name)
    if name == "distributed":
        return importlib.import_module(".distributed", __name__)
    if name == "__version__":
        from .program import version
        return version()["version"]
    raise AttributeError(f"lockstep has no {name}")


def __dir__():
    return sorted(__all__)
