"""What goes wrong, in the program's own words: they say what happened, the rule and the fix."""
from __future__ import annotations

import functools
import json
import pathlib
import re


class LockstepError(RuntimeError):
    """A command of `lockstep` that ended with an error. `code`: 2 settings, 3 machine, 4 data, 5 checkpoint, 6 run, 70 a bug.

    Where the failure is one of the catalogue, `explained` is its stable code ("LS-401") and `fix` what to do; otherwise both are None.
    """

    def __init__(self, message: str, code: int = 1) -> None:
        super().__init__(message)
        self.code = code

    @property
    def explained(self) -> str | None:
        named = re.search(r"\bLS-\d{3}\b", str(self))
        return named[0] if named else None

    @property
    def fix(self) -> str | None:
        return _catalogue().get(self.explained) if self.explained else None


class RunFailed(LockstepError):
    """A run whose ranks could not go on. `folder` holds what it left: logs, metrics, checkpoints."""

    def __init__(self, message: str, code: int, folder: pathlib.Path | None = None) -> None:
        super().__init__(message, code)
        self.folder = folder


class ArgumentsRefused(LockstepError, ValueError):
    """Arguments that change the training and cannot be carried out. `refused`: their names, each with the reason."""

    def __init__(self, refused: dict[str, str]) -> None:
        super().__init__("\n".join(["these arguments cannot be carried out:", *(f"  {name}: {why}" for name, why in refused.items())]), 2)
        self.refused = refused


@functools.cache
def _catalogue() -> dict[str, str]:
    """The fix for each code, as `lockstep explain` has it."""
    from .program import call
    return {entry["code"]: entry["fix"] for entry in json.loads(call("explain", "--json").stdout)}
