"""The same losses however a step is computed: CPU and GPU, ranks and accumulation, graphs or not, 16 bits and 32, kept or recomputed."""
import json

from suite import ROOT, Case, Problem, Run, Suite, expect_close, expect_same_bytes

# Rounding alone grows over 20 steps of this model at its learning rate to some 1e-5 of the loss in f32 and 2e-3 in 16 bits; a case may go a few
# times as far, and its line tells how far it went.
F32, SIXTEEN_BITS, SIXTEEN_BIT_STATES = 5e-5, 4e-3, 1e-2
STEPS = 20
COMMON = ["-f", ROOT / "models/nano.yaml", "--max-steps", STEPS, "trainer.log_interval=1", "trainer.eval_batches=1", "trainer.global_batch_size=16",
          "trainer.warmup_steps=5", "monitor.sample_tokens=0", "trainer.save_interval=0"]
ONE, TWO, FOUR = ["--batch-size", 16], ["--ranks", 2, "--batch-size", 8], ["--ranks", 4, "--batch-size", 4]
NCCL = ["--sync-backend", "nccl"]
DETERMINISTIC = "trainer.deterministic=true"


def yardstick(suite: Suite) -> Run:
    """One rank in f32, made once."""
    run = Run(suite.folder / "f32")
    return run if (run.folder / "summary.json").exists() else suite.train("f32", *COMMON, *ONE, "--dtype", "f32")


def same_losses(name: str, tolerance: float, *args, backend: str | None = None, place: list | None = None, seconds: float = 5) -> Case:
    def work(suite: Suite) -> str:
        expected = yardstick(suite)
        run = suite.train(name, *COMMON, *args, place=place)
        used = run.summary()["backend"]
        if backend and suite.device == "cuda" and used != backend:
            raise Problem(f"ran over {used}, not {backend}")
        return expect_close(name, run.losses(), expected.losses(), tolerance)

    return Case(name, seconds, work)


def same_bits(name: str, *changed, common: list | None = None) -> Case:
    """Deterministic kernels: another way to compute the same step leaves the same weights and moments."""

    def work(suite: Suite) -> str:
        plain, other = (suite.train(f"{name}-{which}", *COMMON, *ONE, "--dtype", "bf16", "--max-steps", 8, DETERMINISTIC, *(common or []), *more)
                        for which, more in (("plain", ()), ("other", changed)))
        return expect_same_bytes(name, other.tensors(8), plain.tensors(8))

    return Case(name, 10, work)


def headers_agree(suite: Suite) -> str:
    """What a GPU run says of itself."""
    summary = yardstick(suite).summary()
    if suite.device == "cuda" and not (summary["memory"]["driver_bytes"] > summary["memory"]["peak_bytes"] > 0):
        raise Problem(f"the driver counts less than the tensors hold: {json.dumps(summary['memory'])}")
    return summary["device"]


CASES = [
    Case("f32", 6, headers_agree),
    same_losses("cpu-f32", F32, "--ranks", 1, *ONE, "--dtype", "f32", place=["--device", "cpu"], seconds=15),
    same_losses("nccl-two-ranks", F32, *TWO, "--dtype", "f32", *NCCL, backend="nccl"),
    same_losses("bf16", SIXTEEN_BITS, *ONE, "--dtype", "bf16"),
    same_losses("f16", SIXTEEN_BITS, *ONE, "--dtype", "f16"),
    same_losses("accumulation", F32, "--batch-size", 4, "--dtype", "f32"),
    same_losses("kernel-by-kernel", F32, *ONE, "--dtype", "f32", "trainer.cuda_graphs=false"),
    same_bits("deterministic-twice"),
    same_bits("graphs-bit-for-bit", "trainer.cuda_graphs=false"),
    same_bits("recompute-bit-for-bit", "trainer.recompute=blocks", common=["trainer.recompute=none"]),
    same_bits("offload-bit-for-bit", "trainer.recompute=blocks", "trainer.offload_checkpoints=true", common=["trainer.recompute=none"]),
    same_losses("nccl-two-ranks-accumulation", F32, "--ranks", 2, "--batch-size", 2, "--dtype", "f32", *NCCL, "trainer.eval_interval=6",
                "parallel.check_divergence=5", backend="nccl"),
    same_losses("bf16-nccl-two-ranks", SIXTEEN_BITS, *TWO, "--dtype", "bf16", *NCCL, "parallel.check_divergence=5", backend="nccl"),
    same_losses("bf16-nccl-reduced-in-f32", SIXTEEN_BITS, *TWO, "--dtype", "bf16", *NCCL, "parallel.reduce_dtype=f32", backend="nccl"),
    same_losses("f16-nccl-two-ranks", SIXTEEN_BITS, *TWO, "--dtype", "f16", *NCCL, backend="nccl"),
    same_losses("cpu-backend-two-ranks", F32, *TWO, "--dtype", "f32", "--sync-backend", "cpu", backend="cpu"),
    same_losses("gloo-two-ranks", F32, *TWO, "--dtype", "f32", "--sync-backend", "gloo"),
    same_losses("bf16-states", SIXTEEN_BIT_STATES, *ONE, "--dtype", "bf16", "--optimizer-states", "bf16"),
    same_losses("adamw-8bit", SIXTEEN_BIT_STATES, *ONE, "--dtype", "bf16", "--optimizer", "adamw_8bit"),
    same_losses("bf16-states-nccl-two-ranks", SIXTEEN_BIT_STATES, *TWO, "--dtype", "bf16", "--optimizer-states", "bf16", *NCCL, "parallel.check_divergence=5",
                backend="nccl"),
    same_losses("nccl-four-ranks", F32, *FOUR, "--dtype", "f32", *NCCL, backend="nccl", seconds=30),
]
