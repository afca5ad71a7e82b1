"""Datasets of any kind as files that the program reads: lists, generators, datasets.Dataset, or files as they are."""
from __future__ import annotations

import hashlib
import json
import os
import pathlib
import tempfile
from collections.abc import Callable, Iterable, Iterator
from typing import IO, Any

from .errors import LockstepError


def cache_folder() -> pathlib.Path:
    return pathlib.Path(os.environ.get("LOCKSTEP_CACHE") or pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "lockstep")


def keep(text: str, kind: str, ending: str) -> pathlib.Path:
    """A text as a file named by its content: the same text is the same file, for every rank and every start."""
    return _keep_lines([text], kind, ending)


def _keep_lines(lines: Iterable[str], kind: str, ending: str) -> pathlib.Path:
    folder = cache_folder() / kind
    try:
        folder.mkdir(parents=True, exist_ok=True)
        file = tempfile.NamedTemporaryFile("w", dir=folder, suffix=".partial", delete=False, encoding="utf-8", newline="\n")
    except OSError as error:
        raise _unwritable(folder, error) from None
    digest = hashlib.sha256()
    try:
        with file:
            for line in lines:
                digest.update(line.encode("utf-8", "replace"))
                _write(file, line)
        path = folder / f"{digest.hexdigest()[:32]}{ending}"
        os.replace(file.name, path)
    except BaseException:
        os.unlink(file.name)
        raise
    return path


def _write(file: IO[str], line: str) -> None:
    try:
        file.write(line)
    except OSError as error:  # not one that reading the dataset raises: that is its owner's
        raise _unwritable(pathlib.Path(file.name), error) from None


def _unwritable(path: pathlib.Path, error: OSError) -> LockstepError:
    return LockstepError(f"{path} cannot be written: {error.strerror}. Records and settings are kept there; LOCKSTEP_CACHE names another folder.", 3)


def _plain(value: Any) -> Any:
    """What json cannot write by itself: numbers and arrays of numpy and torch."""
    for method in ("tolist", "item"):
        if hasattr(value, method):
            return getattr(value, method)()
    raise TypeError(f"a {type(value).__name__} is no text, number, list or dict")


def _records(dataset: Iterable[Any], formatting_func: Callable[[Any], Any] | None) -> Iterator[str]:
    for number, row in enumerate(dataset):
        if formatting_func is not None:
            made = formatting_func(row)
            rows = made if isinstance(made, list) else [made]
        else:
            rows = [row]
        for one in rows:
            record = {"text": one} if isinstance(one, str) else one
            if not isinstance(record, dict):
                raise LockstepError(f"record {number} of the dataset is a {type(one).__name__}. Records are dicts ({{'messages': ...}}, {{'text': ...}}, "
                                    "{'prompt': ..., 'completion': ...}) or plain texts.", 4)
            try:
                line = json.dumps(record, ensure_ascii=False, default=_plain, allow_nan=False) + "\n"
                line.encode()  # halves of a character are none
            except (TypeError, ValueError) as error:
                raise LockstepError(f"record {number} of the dataset cannot be written as JSON: {error}.", 4) from None
            yield line


def as_file(dataset: Any, formatting_func: Callable[[Any], Any] | None = None) -> str:
    """The file (or files, with commas between) of a dataset. What is in memory is written once, under a name that its content gives."""
    if isinstance(dataset, (str, os.PathLike)) and formatting_func is None:
        if not os.path.exists(dataset) and not any(sign in os.fspath(dataset) for sign in ",*?["):
            raise LockstepError(f"the dataset {os.fspath(dataset)} is no file here, and nothing is downloaded: give a file, a folder, or records.", 4)
        return os.fspath(dataset)
    if isinstance(dataset, (str, os.PathLike)):
        with open(dataset, encoding="utf-8") as lines:
            return str(_keep_lines(_records((json.loads(line) for line in lines if line.strip()), formatting_func), "datasets", ".jsonl"))
    if isinstance(dataset, dict):
        raise LockstepError("the dataset is a dict of splits: give one of them, dataset['train'], and eval_dataset=dataset['test'].", 4)
    path = _keep_lines(_records(dataset, formatting_func), "datasets", ".jsonl")
    if path.stat().st_size == 0:
        raise LockstepError("the dataset is empty: there is nothing to train on.", 4)
    return str(path)
