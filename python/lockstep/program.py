"""Where the program `lockstep` is, and how it is called."""
import functools
import importlib.util
import json
import os
import pathlib
import shutil
import subprocess
import sys

from .errors import LockstepError

PACKAGE = pathlib.Path(__file__).resolve().parent
IN_WHEEL = PACKAGE / "bin" / "lockstep"


def find_program() -> pathlib.Path:
    """LOCKSTEP_PROGRAM; the one in this package; that of the checkout that this package lies in; the one on PATH."""
    if given := os.environ.get("LOCKSTEP_PROGRAM"):
        return pathlib.Path(given)
    for path in (IN_WHEEL, PACKAGE.parent.parent / "build" / "bin" / "lockstep"):
        if os.access(path, os.X_OK):
            return path
    if on_path := shutil.which("lockstep"):
        return pathlib.Path(on_path)
    raise LockstepError("the program `lockstep` is not found: not in this package, not on PATH. Install the wheel, or set LOCKSTEP_PROGRAM.", 3)


def environment(more: dict | None = None) -> dict:
    """This process's, with the torch of this interpreter where the program could not see it: it looks beside this package by itself."""
    variables = {**os.environ, **{name: str(value) for name, value in (more or {}).items()}}
    if "LOCKSTEP_LIBTORCH" not in variables and find_program() == IN_WHEEL and not (PACKAGE.parent / "torch" / "lib").is_dir():
        spec = importlib.util.find_spec("torch")  # finds it without importing it
        if spec and spec.submodule_search_locations:
            variables["LOCKSTEP_LIBTORCH"] = list(spec.submodule_search_locations)[0]
    return variables


def words_of(settings: dict) -> list[str]:
    """max_steps=20 as --max-steps 20, and {"trainer.max_steps": 20} as trainer.max_steps=20; what each means the program knows."""
    words = []
    for name, value in settings.items():
        if value is None:
            continue
        text = text_of(value)
        words += [f"{name}={text}"] if "." in name else [f"--{name.replace('_', '-')}={text}"]
    return words


def text_of(value) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (list, tuple)):
        return ",".join(text_of(one) for one in value)
    return str(value)


def call(*arguments, env: dict | None = None, check: bool = True) -> subprocess.CompletedProcess:
    """A command that is done soon; its own words become the exception where it fails."""
    done = subprocess.run([str(find_program()), *map(str, arguments)], capture_output=True, text=True, env=environment(env))
    if check and done.returncode != 0:
        raise LockstepError((done.stderr or done.stdout).strip(), done.returncode)
    return done


@functools.cache
def version() -> dict:
    return json.loads(call("--version", "--json").stdout)


def main() -> None:
    """The command `lockstep`: this process becomes the program."""
    try:
        program = str(find_program())
        os.execve(program, [program, *sys.argv[1:]], environment())
    except LockstepError as error:
        print(error, file=sys.stderr)
        raise SystemExit(error.code) from None
