"""Datasets of any kind as files that the program reads: lists, generators, datasets.Dataset, or files as they are."""
from __future__ import annotations

import hashlib
import itertools
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


def _rows(dataset: Any) -> Any:  # an iterable
    """Row by row, also of tables that give their columns to whoever goes over them: pandas, polars, Arrow."""
    if hasattr(dataset, "to_pylist"):
        return dataset.to_pylist()
    if hasattr(dataset, "columns") and hasattr(dataset, "to_dicts"):
        return dataset.to_dicts()
    if hasattr(dataset, "columns") and hasattr(dataset, "to_dict"):
        return dataset.to_dict("records")
    return dataset


def _columns(rows: list[Any]) -> dict[str, list[Any]]:
    return {name: [row[name] for row in rows] for name in rows[0]}


def _takes_batches(formatting_func: Callable[[Any], Any], first: list[Any]) -> bool:
    """Whether it is of the older kind of TRL and Unsloth, which is given columns of many rows and gives a list with a text for each."""
    if len(first) < 2 or not all(isinstance(row, dict) for row in first):
        return False
    try:
        made = formatting_func(_columns(first))
    except Exception:  # it was written for one row
        return False
    return isinstance(made, list) and len(made) == len(first) and all(isinstance(one, (str, dict)) for one in made)


def _formatted(rows: Iterable[Any], formatting_func: Callable[[Any], Any]) -> Iterator[Any]:
    rows = iter(rows)
    first = list(itertools.islice(rows, 2))
    rows = itertools.chain(first, rows)
    if _takes_batches(formatting_func, first):
        while batch := list(itertools.islice(rows, 1000)):
            yield from formatting_func(_columns(batch))
        return
    for row in rows:
        made = formatting_func(row)
        yield from made if isinstance(made, list) else [made]


def _records(dataset: Iterable[Any], formatting_func: Callable[[Any], Any] | None) -> Iterator[str]:
    rows = _rows(dataset)
    for number, one in enumerate(rows if formatting_func is None else _formatted(rows, formatting_func)):
        record = {"text": one} if isinstance(one, str) else one
        if not isinstance(record, dict):
            raise LockstepError(f"record {number} of the dataset is a {type(one).__name__}. Records are dicts ({{'messages': ...}}, {{'text': ...}}, "
                                "{'prompt': ..., 'completion': ...}) or plain texts.", 4)
        if "input_ids" in record:
            raise LockstepError(f"record {number} of the dataset holds tokens (input_ids). Give the texts or conversations themselves: they are tokenized "
                                "by the model's own tokenizer, and what is trained of them is said with train_on.", 4)
        try:
            line = json.dumps(record, ensure_ascii=False, default=_plain, allow_nan=False) + "\n"
            line.encode()  # halves of a character are none
        except (TypeError, ValueError) as error:
            raise LockstepError(f"record {number} of the dataset cannot be written as JSON: {error}.", 4) from None
        yield line


def _lines_of(file: str | os.PathLike[str]) -> Iterator[Any]:
    with open(file, encoding="utf-8") as lines:
        yield from (json.loads(line) for line in lines if line.strip())


def as_file(dataset: Any, formatting_func: Callable[[Any], Any] | None = None) -> str:
    """The file (or files, with commas between) of a dataset. What is in memory is written once, under a name that its content gives."""
    if isinstance(dataset, (str, os.PathLike)) and formatting_func is None:
        if not os.path.exists(dataset) and not any(sign in os.fspath(dataset) for sign in ",*?["):
            raise LockstepError(f"the dataset {os.fspath(dataset)} is no file here, and nothing is downloaded: give a file, a folder, or records.", 4)
        return os.fspath(dataset)
    if isinstance(dataset, (list, tuple)) and dataset and all(isinstance(one, (str, os.PathLike)) and os.path.isfile(one) for one in dataset):
        if formatting_func is None:
            return ",".join(map(os.fspath, dataset))
        dataset = itertools.chain.from_iterable(map(_lines_of, dataset))
    if isinstance(dataset, (str, os.PathLike)):
        dataset = _lines_of(dataset)
    if isinstance(dataset, dict):
        raise LockstepError("the dataset is a dict of splits: give one of them, dataset['train'], and eval_dataset=dataset['test'].", 4)
    path = _keep_lines(_records(dataset, formatting_func), "datasets", ".jsonl")
    if path.stat().st_size == 0:
        raise LockstepError("the dataset is empty: there is nothing to train on.", 4)
    return str(path)
