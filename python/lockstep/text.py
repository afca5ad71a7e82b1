"""Text from a model or a run: one prompt or many, over all GPUs."""
import dataclasses
import json
import pathlib
import tempfile

from .program import call, words_of


@dataclasses.dataclass(frozen=True)
class Completion:
    """`text` is what the model wrote; `finish` why it ended there: end, length, context, stop."""
    text: str
    finish: str

    def __str__(self):
        return self.text


def as_line(prompt) -> dict:
    """A text is gone on from; a list of {"role", "content"} is answered by way of the model's chat template."""
    if isinstance(prompt, str):
        return {"prompt": prompt}
    return dict(prompt) if isinstance(prompt, dict) else {"messages": list(prompt)}


def is_one(prompts) -> bool:
    return isinstance(prompts, (str, dict)) or (len(prompts) > 0 and isinstance(prompts[0], dict) and "role" in prompts[0])


def generate(prompts, *, model=None, run=None, adapter=None, checkpoint=None, ranks=None, batch_size=None, max_tokens=None, max_new_tokens=None,
             temperature=None, do_sample=None, top_k=None, top_p=None, min_p=None, repetition_penalty=None, stop=(), seed=None, system=None,
             device=None, dtype=None, load_in_4bit=False, load_in_8bit=False):
    """What a model folder or a run writes: a Completion for one prompt, a list of them for a list.

    A prompt is a text, or a conversation: a list of {"role": ..., "content": ...}. Several are spread over all GPUs.
    """
    one = is_one(prompts)
    lines = [as_line(prompt) for prompt in ([prompts] if one else prompts)]
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
        answers = [json.loads(line) for line in output.read_text(encoding="utf-8").splitlines()]
    completions = [Completion(answer["completion"], answer["finish"]) for answer in answers]
    return completions[0] if one else completions
