"""However units are cut between ranks, the same numbers come out: bit for bit where sums are made in the same order."""
import hashlib

import pytest

from support.lockstep import Result, train, write_config
from support.model_folders import make_model, save

WIDE = ["model.hidden_size=64", "model.intermediate_size=96"]
ONE_MICRO_BATCH = {
    "two-ranks": (2, []),
    "three-ranks-bf16-tied-clipped": (3, ["--dtype", "bf16", "trainer.optimizer_states=bf16", "model.tie_embeddings=true", "trainer.max_grad_norm=0.05"]),
    "8-bit-states": (3, ["--optimizer", "adamw_8bit", *WIDE]),
    "biases-and-head-norms": (4, ["--optimizer", "lion", "--recompute", "blocks", "model.qk_norm=true", "model.qkv_bias=true"]),
}


def numbers(result: Result) -> dict:
    tensors = {f"{kind} {name}": hashlib.sha256(tensor.contiguous().view(-1).numpy().tobytes() if tensor.dtype.itemsize != 2 else
                                                tensor.contiguous().view(-1).float().numpy().tobytes()).hexdigest()
               for kind in ("model", "optimizer") for name, tensor in result.tensors(6, kind).items()}
    return {"loss": [result.steps()[step]["loss"] for step in range(1, 7)], "norm": [result.steps()[step]["grad_norm"] for step in range(1, 7)],
            "eval": [line["eval_loss"] for line in result.metrics() if "eval_loss" in line], **tensors}


def run(folder, ranks: int, *arguments: str) -> dict:
    name = f"run-{len(list(folder.iterdir()))}"
    return numbers(train(folder, name, write_config(folder), "--threads", "1", "--ranks", str(ranks), "--max-steps", "6", *arguments))


@pytest.mark.parametrize("case", ONE_MICRO_BATCH)
def test_every_cut_gives_the_bits_of_replicas(tmp_path, case):
    ranks, arguments = ONE_MICRO_BATCH[case]
    replicas = run(tmp_path, ranks, *arguments)
    for shard in ("optimizer", "gradients", "full"):
        assert run(tmp_path, ranks, *arguments, f"parallel.shard={shard}") == replicas, shard


def test_with_several_micro_batches_sums_are_made_in_two_orders(tmp_path):
    some = ["trainer.batch_size=1", "trainer.global_batch_size=15"]
    kinds = {shard: run(tmp_path, 5, *some, f"parallel.shard={shard}") for shard in ("none", "optimizer", "gradients", "full")}
    assert kinds["none"] == kinds["optimizer"]
    assert kinds["gradients"] == kinds["full"]
    assert kinds["none"]["loss"] == pytest.approx(kinds["full"]["loss"], rel=1e-6)


def test_groups_of_shards_are_replicas_of_each_other(tmp_path):
    replicas = run(tmp_path, 4)
    for shard in ("optimizer", "gradients", "full"):
        hybrid = run(tmp_path, 4, f"parallel.shard={shard}", "parallel.replicate=2")
        assert hybrid["loss"] == pytest.approx(replicas["loss"], rel=1e-6) and hybrid["norm"] == pytest.approx(replicas["norm"], rel=1e-6)


LORA = ["lora.enabled=true", "lora.target_modules=all-linear", "lora.r=4"]
BASES = {
    "dropout": ["--lora-dropout", "0.2", "--dtype", "bf16"],
    "dora": ["lora.dora=true"],
    "nf4": [*WIDE, "--load-in-4bit", "--dtype", "bf16"],
    "int8-plain-scales": [*WIDE, "--load-in-8bit", "trainer.batch_size=1"],
}


@pytest.mark.parametrize("base", BASES)
def test_frozen_units_lie_in_shards_and_adapters_learn_the_same(tmp_path, base):
    replicas = run(tmp_path, 3, *LORA, *BASES[base])
    assert run(tmp_path, 3, *LORA, *BASES[base], "parallel.shard=full") == replicas


@pytest.mark.parametrize("optimizer", ["muon", "adafactor"])
def test_matrices_have_owners(tmp_path, optimizer):
    replicas = run(tmp_path, 3, "--optimizer", optimizer, *WIDE, "--dtype", "bf16")
    for shard in ("optimizer", "full"):
        assert run(tmp_path, 3, "--optimizer", optimizer, *WIDE, "--dtype", "bf16", f"parallel.shard={shard}") == replicas, shard


@pytest.mark.parametrize("optimizer", ["adamw", "adamw_8bit", "muon", "adafactor"])
def test_a_run_moves_from_cut_to_cut(tmp_path, optimizer):
    some = [*WIDE, "--optimizer", optimizer, "trainer.global_batch_size=60", "--threads", "1"]
    config = write_config(tmp_path, trainer={"lr_schedule": "constant"})
    alone = train(tmp_path, "alone", config, *some, "--ranks", "1", "--max-steps", "8")
    for step, (ranks, shard) in zip((2, 4, 6, 8), [(4, "full"), (3, "optimizer"), (1, "none"), (5, "full")]):
        moved = train(tmp_path, "moved", config, *some, "--ranks", str(ranks), f"parallel.shard={shard}", "--max-steps", str(step), "--resume", "auto")
    assert [moved.steps()[step]["loss"] for step in range(1, 9)] == pytest.approx([alone.steps()[step]["loss"] for step in range(1, 9)], rel=1e-5)


def test_a_model_folder_and_samples_come_out_of_shards(tmp_path):
    folder = save(make_model("Llama"), tmp_path / "base")
    def tuned(name: str, *arguments: str) -> Result:
        return train(tmp_path, name, write_config(tmp_path, model={}), f"model.path={folder}", "--ranks", "3", "--threads", "1", "--max-steps", "3",
                     "checkpoint.save_at_end=false", "monitor.sample_tokens=8", "data.tokenizer=bytes", *arguments)
    replicas = tuned("replicas")
    for shard in ("optimizer", "full"):
        cut = tuned(shard, f"parallel.shard={shard}")
        for file in (replicas.folder / "model").iterdir():
            assert file.read_bytes() == (cut.folder / "model" / file.name).read_bytes(), (shard, file.name)
        assert [line["text"] for line in cut.metrics() if line.get("event") == "sample"] == [
            line["text"] for line in replicas.metrics() if line.get("event") == "sample"]


@pytest.mark.parametrize("changes,arguments", [({"tie_word_embeddings": True}, ["--load-in-4bit"]), ({}, [])], ids=["tied-nf4", "dense"])
def test_frozen_shards_are_read_from_a_folder(tmp_path, changes, arguments):
    """A tied head is one small norm, of which most ranks hold nothing: the block before it is kept all the same."""
    folder = save(make_model("Llama", **changes), tmp_path / "base")
    replicas, cut = (train(tmp_path, shard, write_config(tmp_path, model={"tie_embeddings": bool(changes)}), f"model.path={folder}", "--ranks", "3", "--threads", "1",
                           "--max-steps", "3", *LORA, *arguments, f"parallel.shard={shard}") for shard in ("none", "full"))
    assert cut.losses() == replicas.losses() and len(cut.losses()) == 3
