"""The examples that `--help` of the data verbs shows are commands that run."""
import json
import re
import shlex
import subprocess

import pytest

from support.chat_model import write_model
from support.lockstep import LOCKSTEP

VERBS = ["inspect", "tokenize", "train-tokenizer"]


def examples_of(verb):
    text = subprocess.run([str(LOCKSTEP), "data", verb, "--help"], capture_output=True, text=True, timeout=30, check=True).stdout
    # A usage line has brackets and words in capitals alone; an example names files.
    lines = re.findall(rf"(?m)^ +(lockstep data {verb} [^\n\[]*[a-z*]\.(?:jsonl|txt|bin)[^\n\[]*)$", text)
    return [line.split("  #")[0].strip() for line in lines]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return write_model(tmp_path_factory.mktemp("help") / "model")


@pytest.mark.parametrize("verb", VERBS)
def test_examples_run(tmp_path, model, verb):
    record = {"messages": [{"role": "user", "content": "Hello?"}, {"role": "assistant", "content": "Hi."}], "text": "Some words. " * 40}
    for name in ("chat.jsonl", "corpus/a.jsonl"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text((json.dumps(record) + "\n") * 30)
    (tmp_path / "corpus" / "a.txt").write_text("All work and no play makes a dull day.\n" * 200)
    examples = examples_of(verb)
    assert examples or verb != "inspect", "the help of inspect shows examples"
    for example in examples:
        words = [str(model) if word in ("DIR", "MODEL_FOLDER", "MODEL") else word for word in shlex.split(example)]
        command = " ".join(words if any("*" in word for word in words) else map(shlex.quote, words)).replace("lockstep", shlex.quote(str(LOCKSTEP)), 1)
        done = subprocess.run(command, shell=True, capture_output=True, text=True, timeout=60, cwd=tmp_path, env={"LOCKSTEP_CACHE": str(tmp_path / "cache"), "PATH": "/usr/bin:/bin"})
        assert done.returncode == 0, f"{example}\n{done.stdout}{done.stderr}"
