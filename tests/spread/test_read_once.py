"""Ranks that hold a model between them read its folder once between them, and hold what one rank holds that reads all of it."""
import json
import re

import pytest

from support.lockstep import train
from support.model_folders import make_model, save
from support.text_models import lockstep

LORA = ["lora.enabled=true", "lora.rank=4"]
# Which folder, what it is trained as, and by how many ranks. Sizes are such that no cut falls between matrices, blocks or scales of scales.
CASES = {
    "dense, trained": ("dense", 8, []),
    "dense, beside adapters": ("dense", 5, LORA),
    "dense, quantized while read": ("dense", 8, [*LORA, "model.load_in_4bit=true"]),
    "dense, plain scales": ("dense", 3, [*LORA, "model.load_in_4bit=true", "model.double_quant=false"]),
    "dense, int8": ("dense", 5, [*LORA, "model.load_in_8bit=true"]),
    "four bits": ("packed", 8, [*LORA, "model.load_in_4bit=true"]),
    "four bits made whole": ("packed", 3, LORA),
    "dense, trained, two groups": ("dense", 8, ["parallel.replicate=2"]),
    "dense, optimizer states alone, two groups": ("dense", 4, ["parallel.replicate=2", "parallel.shard=optimizer"]),
    "dense, beside adapters, two groups": ("dense", 6, [*LORA, "parallel.replicate=2"]),
    "dense, quantized while read, two groups": ("dense", 4, [*LORA, "model.load_in_4bit=true", "parallel.replicate=2"]),
    "dense, int8, two groups": ("dense", 4, [*LORA, "model.load_in_8bit=true", "parallel.replicate=2"]),
    "four bits, two groups": ("packed", 4, [*LORA, "model.load_in_4bit=true", "parallel.replicate=2"]),
}


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """The same model with its matrices in bf16, and in bitsandbytes' four bits."""
    folder = tmp_path_factory.mktemp("models")
    save(make_model("Llama", hidden_size=504, intermediate_size=1048, num_hidden_layers=2, vocab_size=131), folder / "dense", "bfloat16")
    made = run(folder, "made", folder / "dense", 1, ["trainer.learning_rate=1e-30", "checkpoint.save_at_end=true"])  # weights stay as they are
    lockstep("export", "--run", made.folder, "--output", folder / "packed", "--load-in-4bit")
    return folder


def run(folder, name, model, ranks, settings, samples=8):
    sections = {"path": str(model), "dtype": "bf16"}
    config = folder / f"{name}.yaml"
    config.write_text(json.dumps({"model": sections, "data": {"kind": "random", "random_tokens": 4000, "seq_len": 16, "validation_fraction": 0},
                                  "trainer": {"max_steps": 2, "log_interval": 1, "save_interval": 0, "batch_size": 1, "global_batch_size": samples, "learning_rate": 1e-3},
                                  "checkpoint": {"save_at_end": False, "export_at_end": False}, "monitor": {"sample_tokens": 0}}))
    return train(folder, name, config, "--threads", "1", "--ranks", str(ranks), *settings)


def bytes_read(result, ranks):
    words = [re.search(r"read (\d+) bytes of (\d+)", (result.folder / "ranks" / f"{rank}.log").read_text()) for rank in range(ranks)]
    return [int(found[1]) for found in words], int(words[0][2])


@pytest.mark.parametrize("case", CASES)
def test_a_folder_is_read_once(tmp_path, folders, case):
    kind, ranks, settings = CASES[case]
    whole = run(tmp_path, "whole", folders / kind, 1, [setting for setting in settings if not setting.startswith("parallel.")], samples=ranks)
    shards = run(tmp_path, "shards", folders / kind, ranks, ["parallel.shard=full", *settings], samples=ranks)
    assert shards.losses() == pytest.approx(whole.losses(), rel=2e-3)
    assert shards.losses()[0] == pytest.approx(whole.losses()[0], rel=1e-5)  # before a step: the same weights
    read, there = bytes_read(shards, ranks)
    assert sum(read) <= 1.1 * there and max(read) <= 1.4 * there / ranks, (read, there)
    assert bytes_read(whole, 1)[0] == [there]
