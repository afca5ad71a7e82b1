"""Layouts that the table of tests/layouts does not hold, each beside one rank: losses, norms of gradients, evaluation, samples."""
import json

import pytest

from support.lockstep import train, write_config

LORA = ["lora.enabled=true", "lora.rank=4", "lora.target_modules=all-linear"]
WIDE = ["model.hidden_size=64", "model.intermediate_size=96"]
FULL, GROUPS = ["parallel.shard=full"], ["parallel.shard=full", "parallel.replicate=2"]
# What is trained, by how many ranks, how they hold it, and what rounding allows.
CASES = {
    "Muon and adapters in two groups": (["--optimizer", "muon", *WIDE, *LORA], 4, GROUPS, 1e-5),
    "Adafactor, tied, of three": (["--optimizer", "adafactor", "model.tie_embeddings=true"], 3, FULL, 1e-5),
    "8-bit states, weights rounded by chance, of five": (["--optimizer", "adamw_8bit", "--dtype", "bf16", "trainer.optimizer_states=bf16", *WIDE], 5, FULL, 1e-2),
    "clipping in three groups": (["trainer.max_grad_norm=0.02"], 6, ["parallel.shard=full", "parallel.replicate=3"], 1e-5),
    "four bits of seven": ([*LORA, *WIDE, "--load-in-4bit"], 7, FULL, 1e-5),
    "fewer rows than ranks": (["model.vocab_size=5", "model.hidden_size=8", "model.num_heads=2", "model.kv_heads=1", "model.intermediate_size=4"], 7, FULL, 1e-5),
}


def run(folder, name, ranks, *settings, **sections):
    config = write_config(folder, f"{name}.yaml", trainer={"max_steps": 4, "eval_interval": 2, "global_batch_size": 420}, monitor={"sample_tokens": 8, "sample_interval": 2})
    return train(folder, name, config, "--threads", "1", "--ranks", str(ranks), *settings)


def numbers(result):
    steps = [line for _, line in sorted(result.steps().items())]
    return {"loss": [line["loss"] for line in steps], "norm": [line["grad_norm"] for line in steps],
            "evaluation": [line["eval_loss"] for line in result.metrics() if "eval_loss" in line]}


@pytest.mark.parametrize("case", CASES)
def test_it_trains_as_one_rank_does(tmp_path, case):
    settings, ranks, layout, near = CASES[case]
    alone, spread = run(tmp_path, "alone", 1, *settings), run(tmp_path, "spread", ranks, *settings, *layout)
    expected, got = numbers(alone), numbers(spread)
    assert len(expected["loss"]) == 4 and len(expected["evaluation"]) >= 2
    for what in expected:
        assert got[what] == pytest.approx(expected[what], rel=near), what
    if near < 1e-3:  # rounding by chance may choose another word
        samples = [[line["text"] for line in result.metrics() if line.get("event") == "sample"] for result in (alone, spread)]
        assert samples[0] == samples[1] and samples[0]


def test_packed_records_go_on_in_the_middle_of_an_epoch(tmp_path):
    records, tokenizer = tmp_path / "records.jsonl", tmp_path / "tokenizer.json"
    records.write_text("".join(json.dumps({"text": " ".join(f"w{(7 * i + k) % 67}" for k in range(3 + i % 11))}) + "\n" for i in range(400)))
    tokenizer.write_text(json.dumps({"version": "1.0", "added_tokens": [], "normalizer": None, "pre_tokenizer": {"type": "WhitespaceSplit"}, "post_processor": None,
                                     "decoder": None, "model": {"type": "WordLevel", "vocab": {f"w{i}": i for i in range(67)}, "unk_token": "w0"}}))
    config = write_config(tmp_path, data={"kind": "records", "path": str(records), "tokenizer": str(tokenizer), "packing": True, "seq_len": 16, "cache_dir": str(tmp_path / "cache")},
                          trainer={"global_batch_size": 12, "lr_schedule": "constant"})
    alone = train(tmp_path, "alone", config, "--threads", "1", "--ranks", "1", "--max-steps", "20")
    for step, ranks, layout in ((5, 4, FULL), (9, 1, ["parallel.shard=none"]), (14, 3, ["parallel.shard=gradients"]), (20, 6, GROUPS)):
        moved = train(tmp_path, "moved", config, "--threads", "1", "--ranks", str(ranks), *layout, "--max-steps", str(step), "--resume", "auto")
    assert moved.losses() == pytest.approx(alone.losses(), rel=1e-5)
    places = [json.loads((result.checkpoint(20) / "state.json").read_text())["data"] for result in (alone, moved)]
    assert places[0] == places[1] and places[0]["epoch"] > 0 and places[0]["sample"] > 0


@pytest.mark.parametrize("ranks,layout", [(3, ["parallel.shard=optimizer"]), (3, ["parallel.shard=gradients"]), (3, FULL), (6, GROUPS)], ids=["optimizer", "gradients", "full", "groups"])
def test_batches_shrink_until_they_fit(tmp_path, ranks, layout):
    fault = {"LOCKSTEP_TEST_FAULT": f"rank={ranks - 1} action=memory samples=2"}
    shrunk, plain = ({"batch_size": size, "global_batch_size": 24, "max_steps": 4, "auto_find_batch_size": size == 4} for size in (4, 2))
    found = train(tmp_path, "found", write_config(tmp_path, trainer=shrunk), "--threads", "1", "--ranks", str(ranks), *layout, env=fault)
    assert any("batch_size 4 did not fit into memory" in line.get("text", "") for line in found.metrics())
    assert found.losses() == train(tmp_path, "plain", write_config(tmp_path, "plain.yaml", trainer=plain), "--threads", "1", "--ranks", str(ranks), *layout).losses()
