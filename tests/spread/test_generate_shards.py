"""generate --shard: ranks that hold a model between them write what one rank writes that holds all of it."""
import pytest

from e2e.test_generate import GREEDY, LINES
from support.lockstep import train, write_config
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
