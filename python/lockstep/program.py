"""Where the program `lockstep` is, and how it is called."""
from __future__ import annotations

import functools
import importlib.util
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
from typing import Any

from .errors import LockstepError

PACKAGE = pathlib.Path(__file__).resolve().parent
IN_WHEEL = PACKAGE / "bin" / "lockstep"


def find_program() -> pathlib.Path:
    """LOCKSTEP_PROGRAM; the one in this package; that of the checkout that this package lies in; the one on PATH."""
    if given := os.environ.get("LOCKSTEP_PROGRAM"):
        if not os.path.isfile(given) or not os.access(given, os.X_OK):
            raise LockstepError(f"LOCKSTEP_PROGRAM={given} is no program that can be started.", 3)
        return pathlib.Path(given)
    for path in (IN_WHEEL, PACKAGE.parent.parent / "build" / "bin" / "lockstep"):
        if os.access(path, os.X_OK):
            return path
    if on_path := shutil.which("lockstep"):
        return pathlib.Path(on_path)
    raise LockstepError("the program `lockstep` is not found: not in this package, not on PATH. Install the wheel, or set LOCKSTEP_PROGRAM.", 3)


def environment(more: dict[str, Any] | None = None) -> dict[str, str]:
    """This process's, with the torch of this interpreter where the program could not see it: it looks beside this package by itself."""
    variables = {**os.environ, **{name: str(value) for name, value in (more or {}).items()}}
    if "LOCKSTEP_LIBTORCH" not in variables and find_program() == IN_WHEEL and not (PACKAGE.parent / "torch" / "lib").is_dir():
        spec = importlib.util.find_spec("torch")  # finds it without importing it
        if spec and spec.submodule_search_locations:
            variables["LOCKSTEP_LIBTORCH"] = list(spec.submodule_search_locations)[0]
    return variables


def words_of(settings: dict[str, Any]) -> list[str]:
    """max_steps=20 as --max-steps 20, and {"trainer.max_steps": 20} as trainer.max_steps=20; what each means the program knows."""
    words = []
    for name, value in settings.items():
        if value is None:
            continue
        text = text_of(value)
        words += [f"{name}={text}"] if "." in name else [f"--{name.replace('_', '-')}={text}"]
    return words


def text_of(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (list, tuple)):
        return ",".join(text_of(one) for one in value)
    return str(value)


def lines_of(text: str) -> list[str]:
    """Lines of JSON. str.splitlines cuts at U+2028 and its like too, which may stand within a text."""
    return [line for line in text.split("\n") if line]


def call(*arguments: object, env: dict[str, Any] | None = None, check: bool = True) -> subprocess.CompletedProcess[str]:
    """A command that is done soon; its own words become the exception where it fails."""
    process = open_program(*arguments, env=env, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE)
    try:
        out, said = process.communicate()
    except BaseException:  # Ctrl-C is for this process; the command goes with it
        process.kill()
        process.wait()
        raise
    if check and process.returncode != 0:
        raise LockstepError((said or out).strip(), process.returncode)
    return subprocess.CompletedProcess(process.args, process.returncode, out, said)


def open_program(*arguments: object, env: dict[str, Any] | None = None, **pipes: Any) -> subprocess.Popen[str]:
    """The program, with a pipe from what it says."""
    program = str(find_program())
    try:
        return subprocess.Popen([program, *map(str, arguments)], stdout=subprocess.PIPE, text=True, encoding="utf-8", errors="replace",
                                env=environment(env), **pipes)
    except OSError as error:  # a disk that starts no programs, another kind of machine
        raise LockstepError(f"{program} cannot be started: {error.strerror}.", 3) from None


@functools.cache
def version() -> dict[str, Any]:
    about: dict[str, Any] = json.loads(call("--version", "--json").stdout)
    return about


def main() -> None:
    """The command `lockstep`: this process becomes the program."""
    try:
        program, variables = str(find_program()), environment()
        for number in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores them, and a program would inherit that: `lockstep watch | head` would never end
            signal.signal(number, signal.SIG_DFL)
        os.execve(program, [program, *sys.argv[1:]], variables)
    except LockstepError as error:
        print(error, file=sys.stderr)
        raise SystemExit(error.code) from None
    except OSError as error:
        print(f"{program} cannot be started: {error.strerror}.", file=sys.stderr)
        raise SystemExit(3) from None
