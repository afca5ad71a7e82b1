"""However units are cut between ranks, the same numbers come out: bit for bit where sums are made in the same order."""
import hashlib

import pytest

from support.lockstep import Result, train, write_config

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
    return numbers(train(folder, "-".join([str(ranks), *arguments]).replace("=", "-").replace("/", "-")[-60:], write_config(folder), "--threads", "1",
                         "--ranks", str(ranks), "--max-steps", "6", *arguments))


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
