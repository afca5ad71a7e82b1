"""Units in shards over NCCL, ranks sharing one GPU: the losses of one rank that holds everything."""
from equality import COMMON, DETERMINISTIC, F32, FOUR, NCCL, SIXTEEN_BIT_STATES, SIXTEEN_BITS, TWO, same_losses
from suite import Case, Problem, Suite, expect_close, expect_same_bytes

LORA = ["lora.enabled=true", "lora.target_modules=all-linear", "lora.r=8"]


def shard(kind: str) -> str:
    return f"parallel.shard={kind}"


def same_bits(name: str, first: str, second: str, *args) -> Case:
    """Two cuts whose sums are made in the same order."""

    def work(suite: Suite) -> str:
        one, other = (suite.train(f"{name}-{kind}", *COMMON, *TWO, "--dtype", "bf16", *NCCL, "--max-steps", 8, DETERMINISTIC, shard(kind), *args)
                      for kind in (first, second))
        return expect_same_bytes(name, other.tensors(8), one.tensors(8))

    return Case(name, 14, work)


def same_bits_recorded(name: str, kind: str, *args) -> Case:
    """Micro-steps recorded as CUDA graphs, gathers and reductions inside, beside the same kernel by kernel."""

    def work(suite: Suite) -> str:
        plain, recorded = (suite.train(f"{name}-{graphs}", *COMMON, "--ranks", 2, "--batch-size", 2, "--dtype", "bf16", *NCCL, "--max-steps", 8, DETERMINISTIC,
                                       shard(kind), *args, f"trainer.cuda_graphs={graphs}")
                           for graphs in ("false", "true"))
        if suite.device == "cuda" and not recorded.summary()["cuda_graph"]:
            raise Problem("nothing was recorded")
        return expect_same_bytes(name, recorded.tensors(8), plain.tensors(8))

    return Case(name, 16, work)


def same_as_replicas(name: str, tolerance: float, *args) -> Case:
    def work(suite: Suite) -> str:
        whole, cut = (suite.train(f"{name}-{kind}", *COMMON, *TWO, *NCCL, *args, shard(kind)) for kind in ("none", "full"))
        return expect_close(name, cut.losses(), whole.losses(), tolerance)

    return Case(name, 14, work)


CASES = [
    same_losses("shards-full", F32, *TWO, "--dtype", "f32", *NCCL, shard("full"), backend="nccl", seconds=8),
    same_losses("shards-full-accumulation", F32, "--ranks", 2, "--batch-size", 2, "--dtype", "f32", *NCCL, shard("full"), "trainer.eval_interval=6",
                backend="nccl", seconds=8),
    same_bits("shards-bit-for-bit", "gradients", "full"),
    *(same_bits_recorded(f"shards-recorded-{kind}", kind) for kind in ("full", "gradients", "optimizer")),
    same_bits_recorded("shards-recorded-lora-4bit", "full", *LORA, "--load-in-4bit"),
    same_as_replicas("shards-lora-4bit", SIXTEEN_BITS, "--dtype", "bf16", *LORA, "--load-in-4bit"),
    same_losses("shards-gradients", F32, *TWO, "--dtype", "f32", *NCCL, shard("gradients"), backend="nccl", seconds=8),
    same_losses("shards-optimizer", F32, *TWO, "--dtype", "f32", *NCCL, shard("optimizer"), backend="nccl", seconds=8),
    same_losses("shards-full-bf16", SIXTEEN_BITS, *TWO, "--dtype", "bf16", *NCCL, shard("full"), backend="nccl", seconds=8),
    same_as_replicas("shards-muon", SIXTEEN_BIT_STATES, "--dtype", "bf16", "--optimizer", "muon"),
    same_losses("shards-hybrid-four-ranks", F32, *FOUR, "--dtype", "f32", *NCCL, shard("full"), "parallel.replicate=2", backend="nccl", seconds=30),
]
