"""Ranks that go on from a checkpoint under another cut read what they will hold of it, and look through it between them."""
import json
import re

import pytest

from support.lockstep import train

# Tensors of up to 25 MiB, many times what has one checksum (4 MiB): 125 MiB of weights, and AdamW's two states of each.
MODEL = {"hidden_size": 768, "num_layers": 2, "num_heads": 8, "kv_heads": 8, "intermediate_size": 3072, "vocab_size": 8192, "max_seq_len": 16, "tie_embeddings": False}
SLICE = 4 << 20
UNITS, LISTS = 4, 3  # embedding, two blocks, head; weights and two states


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    folder = tmp_path_factory.mktemp("saved")
    config = folder / "config.json"
    config.write_text(json.dumps({"model": MODEL, "data": {"kind": "random", "random_tokens": 4000, "validation_fraction": 0},
                                  "trainer": {"log_interval": 1, "save_interval": 0, "batch_size": 1, "global_batch_size": 12, "learning_rate": 1e-4, "lr_schedule": "constant"},
                                  "checkpoint": {"export_at_end": False}, "monitor": {"sample_tokens": 0}}))
    train(folder, "saved", config, "--threads", "1", "--ranks", "4", "--max-steps", "1", "parallel.shard=full")
    return folder


def run(folder, name, ranks, *settings):
    return train(folder, name, folder / "config.json", "--threads", "1", "--ranks", str(ranks), "--max-steps", "2",
                 "checkpoint.save_at_end=false", "--resume", str(folder / "saved"), *settings)


def bytes_of(result, ranks, pattern):
    found = [re.search(pattern, (result.folder / "ranks" / f"{rank}.log").read_text()) for rank in range(ranks)]
    return [[int(number) for number in one.groups()] for one in found]


CUTS = {
    "optimizer states of three": (3, 1, ["parallel.shard=optimizer"]),
    "all of six": (6, 1, ["parallel.shard=full"]),
    "all of two in two groups": (4, 2, ["parallel.shard=full", "parallel.replicate=2"]),
}


@pytest.mark.parametrize("case", CUTS)
def test_no_rank_reads_much_more_than_its_share(saved, case):
    ranks, groups, settings = CUTS[case]
    moved = run(saved, case.replace(" ", "-"), ranks, *settings)
    assert moved.losses() == pytest.approx(run(saved, f"alone-{ranks}-{groups}", 1).losses(), rel=1e-5)
    rows = bytes_of(moved, ranks, r"\[resume\] read (\d+) bytes of (\d+)")
    read, held = [row[0] for row in rows], rows[0][1]
    # A unit is cut once between two sharers: both read the slice that the cut lies in.
    cuts = (ranks // groups - 1) * UNITS * LISTS
    assert held <= sum(read) <= held + cuts * SLICE, (read, held)
    assert max(read) <= held / ranks + 2 * UNITS * LISTS * SLICE / groups * 1.1, (read, held)
    looked = [row[0] for row in bytes_of(moved, ranks, r"looked through (\d+) bytes of")]
    files = sum(path.stat().st_size for path in (saved / "saved" / "checkpoints" / "step-000001").iterdir() if path.name != "manifest.json")
    assert sum(looked) == files and max(looked) < files, looked


def test_damage_that_another_rank_finds_is_skipped_and_told(tmp_path):
    config = tmp_path / "config.json"
    config.write_text(json.dumps({"model": {**MODEL, "hidden_size": 32, "intermediate_size": 64, "vocab_size": 67}, "data": {"kind": "random", "random_tokens": 4000},
                                  "trainer": {"log_interval": 1, "save_interval": 2, "global_batch_size": 12}, "monitor": {"sample_tokens": 0}}))
    first = train(tmp_path, "run", config, "--threads", "1", "--ranks", "3", "--max-steps", "4")
    files = [entry["name"] for entry in json.loads((first.checkpoint(4) / "manifest.json").read_text())["files"]]
    damaged = first.checkpoint(4) / files[1]  # the second of three ranks looks through it
    content = bytearray(damaged.read_bytes())
    content[-1] ^= 1
    damaged.write_bytes(content)
    again = train(tmp_path, "run", config, "--threads", "1", "--ranks", "3", "--max-steps", "5", "--resume", "auto")
    assert f"resumed from {first.checkpoint(2)} at step 2" in (again.folder / "ranks" / "0.log").read_text()
    assert f"{damaged} is damaged" in (again.folder / "ranks" / "0.log").read_text()
    asked = train(tmp_path, "other", config, "--threads", "1", "--ranks", "3", "--max-steps", "5", "--resume", str(first.folder / "checkpoints" / "abandoned-1" / "step-000004"),
                  check=False)
    assert asked.code == 5 and damaged.name in asked.text, asked.text
