"""generate and chat --shard: ranks that hold a model between them write what one rank writes that holds all of it."""
import json
import os
import pathlib
import signal
import subprocess

import pytest

from e2e.test_generate import GREEDY, LINES, chat
from support.lockstep import LOCKSTEP, ROOT, train, write_config
from support.text_models import generate_file, lockstep, make_folder


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("text") / "model"
    make_folder(folder)
    return folder


@pytest.mark.parametrize("held", [(), ("--load-in-4bit",)], ids=["dense", "4-bit"])
def test_a_file_is_answered_alike(tmp_path, model, held):
    sampling = ("--batch-size", 3, "--max-tokens", 10, "--temperature", 1.1, "--seed", 3, *held)
    generate_file(tmp_path, LINES, "--ranks", 1, *sampling, model=model, name="whole")
    for ranks in (2, 3):
        generate_file(tmp_path, LINES, "--shard", "--ranks", ranks, *sampling, model=model, name=f"shards{ranks}")
        assert (tmp_path / f"shards{ranks}.jsonl").read_bytes() == (tmp_path / "whole.jsonl").read_bytes()


def test_a_prompt_and_a_chat(model):
    for kind in ("--prompt", "--chat"):
        whole = lockstep("generate", "--model", model, kind, "w10 w11", "--max-tokens", 9, "--no-stream", *GREEDY).stdout
        assert lockstep("generate", "--model", model, kind, "w10 w11", "--max-tokens", 9, "--shard", "--ranks", 2, *GREEDY).stdout == whole


def test_a_run_and_its_adapter(tmp_path, model):
    for name, sections in {"full": {}, "lora": {"lora": {"enabled": True, "rank": 4}}}.items():
        done = train(tmp_path, name, write_config(tmp_path, f"{name}.yaml", trainer={"batch_size": 6, "max_steps": 3}, **sections), "--ranks", "2", "parallel.shard=full")
        words = ("--prompt", "Once", "--max-tokens", 12, *GREEDY)
        assert lockstep("generate", "--run", done.folder, *words, "--shard", "--ranks", 3).stdout == lockstep("generate", "--run", done.folder, *words, "--no-stream").stdout


@pytest.mark.parametrize("held", [(), ("--load-in-4bit",)], ids=["dense", "4-bit"])
def test_a_conversation(model, held):
    """With what is said in between: a conversation forgotten, a system message, a question too long for the model."""
    said = ("w10 w11", "w12", "/reset", "w10 w11", " ".join(["w9"] * 140), "/system w50", "w30", "/nonsense", "/exit")
    whole, shards = chat(model, *said, args=held), chat(model, *said, args=(*held, "--shard", "--ranks", "3"))
    assert len(whole.stdout.splitlines()) == 4 and shards.stdout == whole.stdout
    for words in ("leaves no room", "/nonsense is not a command"):
        assert words in whole.stderr and words in shards.stderr


def ranks_of(process):
    """Of its children: their pids, by rank."""
    ranks = {}
    for pid in pathlib.Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split():
        variables = dict(entry.split("=", 1) for entry in pathlib.Path(f"/proc/{pid}/environ").read_text().split("\0") if "=" in entry)
        ranks[int(variables["RANK"])] = int(pid)
    return ranks


def test_programs_talk_to_it_by_lines_until_a_rank_dies(model):
    command = [LOCKSTEP, "chat", "--json", "--shard", "--ranks", "2", "--model", model, "--max-tokens", "5", *GREEDY]
    process = subprocess.Popen([str(word) for word in command], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert json.loads(process.stdout.readline())["ready"]
        for question in ({"messages": [{"role": "user", "content": "w10"}]}, {"nothing": 1}, {"messages": [{"role": "user", "content": "w11"}]}):
            process.stdin.write(json.dumps(question) + "\n")
            process.stdin.flush()
            while (answer := json.loads(process.stdout.readline())).keys() == {"text"}:
                pass
            assert ("finish" in answer) == ("messages" in question), answer
        ranks = ranks_of(process)
        os.kill(ranks[1], signal.SIGKILL)
        _, words = process.communicate(timeout=60)
        assert process.returncode not in (0, 70) and "rank 1" in words and "SIGKILL" in words, words
        assert not [pid for pid in ranks.values() if pathlib.Path(f"/proc/{pid}").exists()]
    finally:
        process.kill()


def test_mistakes(model):
    assert "--shard" in lockstep("chat", "--model", model, "--ranks", 2, code=2).stderr
