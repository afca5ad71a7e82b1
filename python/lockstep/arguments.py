"""Arguments under the names that people know, and the program's own tables that say what each means here."""
from __future__ import annotations

import enum
import json
import os
import pathlib
import tempfile
from typing import Any

from .errors import ArgumentsRefused, LockstepError
from .program import call


def plain(value: Any) -> Any:
    """As it would stand in a file: enums by their value, torch.bfloat16 as bfloat16, paths as text."""
    if isinstance(value, enum.Enum):
        return plain(value.value)
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if type(value).__module__ == "torch" and type(value).__name__ == "dtype":
        return str(value).removeprefix("torch.")
    if hasattr(value, "to_dict"):
        return plain(value.to_dict())
    if isinstance(value, dict):
        return {str(name): plain(one) for name, one in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [plain(one) for one in value]
    return value


class TrainingArguments:
    """Hugging Face's TrainingArguments: any of their names; what is not given has their default.

    Nothing is looked at here: `lockstep config import` knows every name, and says which cannot be carried out.
    """

    program = "huggingface"  # whose table is asked

    def __init__(self, output_dir: str | os.PathLike[str] | None = None, **arguments: Any) -> None:
        self._values: dict[str, Any] = {name: plain(value) for name, value in {"output_dir": output_dir, **arguments}.items() if value is not None}

    @classmethod
    def of(cls, args: Any) -> TrainingArguments:
        """These, a dict, or an object of transformers or TRL: of the latter what differs from its class's defaults."""
        if args is None:
            return cls()
        if isinstance(args, TrainingArguments):
            return args
        if isinstance(args, dict):
            return cls(**args)
        return _from_other(args)

    def to_dict(self) -> dict[str, Any]:
        return dict(self._values)

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("_") and name in self._values:
            return self._values[name]
        raise AttributeError(f"{name} is not set in these arguments")

    def __setattr__(self, name: str, value: Any) -> None:
        """args.max_steps = 20 is as good as having said so at the beginning; None takes it back."""
        if name.startswith("_"):
            return super().__setattr__(name, value)
        self._values.pop(name, None)
        if value is not None:
            self._values[name] = plain(value)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in self._values.items())})"


class SFTConfig(TrainingArguments):
    """TRL's SFTConfig: as TrainingArguments, with what TRL adds (max_length, packing, assistant_only_loss, ...) and its defaults."""

    program = "trl"


def _from_other(args: Any) -> TrainingArguments:
    import dataclasses
    if not dataclasses.is_dataclass(args) or isinstance(args, type):
        raise LockstepError(f"args is a {type(args).__name__}. Give lockstep.TrainingArguments(...), lockstep.SFTConfig(...) or a dict.", 2)
    values = {}
    for field in dataclasses.fields(args):
        value = getattr(args, field.name, None)
        default = field.default if field.default is not dataclasses.MISSING else (
            field.default_factory() if field.default_factory is not dataclasses.MISSING else None)
        if field.init and plain(value) != plain(default):
            values[field.name] = value
    kind = SFTConfig if any(base.__name__ == "SFTConfig" for base in type(args).__mro__) else TrainingArguments
    return kind(**values)


def run_file(values: dict[str, Any], program: str) -> tuple[str, dict[str, str]]:
    """The run file that a program's arguments mean here, as YAML with that program's defaults, and one by one the settings that were given.
    Raises ArgumentsRefused."""
    with tempfile.TemporaryDirectory(prefix="lockstep-") as folder:
        file = pathlib.Path(folder, "arguments.json")
        file.write_text(json.dumps(plain(values), indent=1), encoding="utf-8")
        done = call("config", "import", file, "--from", program, "--json", check=False)
    if not done.stdout.startswith("{"):
        raise LockstepError(done.stderr.strip(), done.returncode)
    made = json.loads(done.stdout)
    refused = {key["theirs"]: f"{key['value']}: {key['says']}" for key in made["keys"] if key["fate"] == "refused"}
    if refused:
        raise ArgumentsRefused(refused)
    return made["yaml"], made["given"]
