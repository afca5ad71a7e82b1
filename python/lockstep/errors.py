"""What goes wrong, in the program's own words: they say what happened, the rule and the fix."""


class LockstepError(RuntimeError):
    """A command of `lockstep` that ended with an error. `code`: 2 settings, 3 machine, 4 data, 5 checkpoint, 6 run, 70 a bug."""

    def __init__(self, message: str, code: int = 1):
        super().__init__(message)
        self.code = code


class RunFailed(LockstepError):
    """A run whose ranks could not go on. `folder` holds what it left: logs, metrics, checkpoints."""

    def __init__(self, message: str, code: int, folder=None):
        super().__init__(message, code)
        self.folder = folder


class ArgumentsRefused(LockstepError, ValueError):
    """Arguments that change the training and cannot be carried out. `refused`: their names, each with the reason."""

    def __init__(self, refused: dict):
        super().__init__("\n".join(["these arguments cannot be carried out:", *(f"  {name}: {why}" for name, why in refused.items())]), 2)
        self.refused = refused
