"""Text from a model or a run: one prompt or many, over all GPUs."""
from __future__ import annotations

import dataclasses
import json
import os
import pathlib
import tempfile
from collections.abc import Sequence
from typing import Any, Union, cast

from .program import call, lines_of, words_of

# A text, a conversation, or a line of a file of prompts.
Prompt = Union[str, Sequence[dict[str, Any]], dict[str, Any]]
_Folder = Union[str, os.PathLike[str], None]


@dataclasses.dataclass(frozen=True)
class Completion:
    """`text` is what the model wrote; `finish` why it ended there: end, length, context, stop."""
    text: str
    finish: str

    def __str__(self) -> str:
        return self.text


def as_line(prompt: Prompt) -> dict[str, Any]:
    """A text is gone on from; a list of {"role", "content"} is answered by way of the model's chat template."""
    if isinstance(prompt, str):
        return {"prompt": prompt}
    return dict(prompt) if isinstance(prompt, dict) else {"messages": list(prompt)}


def is_one(prompts: Prompt | Sequence[Prompt]) -> bool:
    if isinstance(prompts, (str, dict)):
        return True
    return len(prompts) > 0 and isinstance(prompts[0], dict) and "role" in prompts[0]


def generate(prompts: Prompt | Sequence[Prompt], *, model: _Folder = None, run: _Folder = None, adapter: _Folder = None, checkpoint: _Folder = None,
             ranks: int | None = None, batch_size: int | None = None, max_tokens: int | None = None, max_new_tokens: int | None = None,
             temperature: float | None = None, do_sample: bool | None = None, top_k: int | None = None, top_p: float | None = None,
             min_p: float | None = None, repetition_penalty: float | None = None, stop: str | Sequence[str] = (), seed: int | None = None,
             system: str | None = None, device: str | None = None, dtype: str | None = None, load_in_4bit: bool = False,
             load_in_8bit: bool = False) -> Any:  # Completion, or list[Completion]
    """What a model folder or a run writes: a Completion for one prompt, a list of them for a list.

    A prompt is a text, or a conversation: a list of {"role": ..., "content": ...}. Several are spread over all GPUs.
    """
    if not isinstance(prompts, (str, dict, list, tuple)):
        prompts = list(prompts)  # a generator, a column of a dataset
    one = is_one(prompts)
    lines = [as_line(prompt) for prompt in cast(Sequence[Prompt], [prompts] if one else prompts)]
    if not lines:
        return []
    settings = {"model": model, "run": run, "adapter": adapter, "checkpoint": checkpoint, "ranks": ranks, "batch_size": batch_size,
                "max_tokens": max_tokens if max_tokens is not None else max_new_tokens, "temperature": 0 if do_sample is False else temperature,
                "top_k": top_k, "top_p": top_p, "min_p": min_p, "repetition_penalty": repetition_penalty, "seed": seed, "system": system,
                "device": device, "dtype": dtype}
    flags = [flag for flag, on in (("--load-in-4bit", load_in_4bit), ("--load-in-8bit", load_in_8bit)) if on]
    for text in [stop] if isinstance(stop, str) else stop:
        flags += ["--stop", text]
    with tempfile.TemporaryDirectory(prefix="lockstep-") as folder:
        file, output = pathlib.Path(folder, "prompts.jsonl"), pathlib.Path(folder, "completions.jsonl")
        file.write_text("".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines), encoding="utf-8")
        call("generate", "--file", file, "--output", output, *words_of(settings), *flags)
        answers = [json.loads(line) for line in lines_of(output.read_text(encoding="utf-8"))]
    completions = [Completion(answer["completion"], answer["finish"]) for answer in answers]
    return completions[0] if one else completions
