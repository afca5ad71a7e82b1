"""Supervision as only a GPU shows it: steps longer than a stall, counted by the device within CUDA graphs; an NCCL that fails on one rank."""
import json

from equality import COMMON, TWO
from suite import ROOT, Case, Problem, Skip, Suite

# 1.1 billion parameters, 393,216 tokens a micro-step: over 4 s each on an H200, queued by the host at once. The host waits for each before
# it fills the next one's buffers, so only a micro-step that is itself longer than a stall shows anything.
LONG_STEPS = ["-f", ROOT / "models/nano.yaml", "--dtype", "bf16", "model.hidden_size=2048", "model.num_layers=16", "model.num_heads=16", "model.kv_heads=16",
              "model.intermediate_size=8192", "model.max_seq_len=2048", "--seq-len", 2048, "--batch-size", 192, "--grad-accum", 2, "--recompute", "blocks", "--max-steps", 3,
              "trainer.log_interval=1", "trainer.eval_interval=0", "data.validation_fraction=0", "trainer.save_interval=0", "trainer.warmup_steps=1",
              "monitor.sample_tokens=0", "checkpoint.save_at_end=false"]
IMPATIENT = ["monitor.stall_seconds=2", "monitor.stall_abort_seconds=4"]


def train_long_steps(suite: Suite, name: str, expect: int, fault: str = ""):
    if suite.device == "cpu":
        raise Skip("needs a GPU")
    suite.command(["rm", "-rf", suite.folder / name, suite.folder / f"{name}-before"])
    common = [suite.lockstep, "train", *suite.place(), *LONG_STEPS, "--output", suite.folder]
    suite.command([*common, "--name", f"{name}-before", "--max-steps", 1], timeout=240)  # matmuls are searched once, for as long as that takes
    return suite.command([*common, *IMPATIENT, "--name", name], expect=expect, env={"LOCKSTEP_TEST_FAULT": fault}, timeout=240)


def a_long_step_is_no_stall(suite: Suite) -> str:
    done = train_long_steps(suite, "long-steps", 0)
    if "nothing has moved" in done.stdout + done.stderr:
        raise Problem(f"a device at work was called a stall:\n{done.stdout[-2000:]}")
    lines = [json.loads(line) for line in (suite.folder / "long-steps/metrics.jsonl").read_text().splitlines()]
    seconds = max(line["step_seconds"] for line in lines if "loss" in line)
    if seconds < 5:
        raise Problem(f"the longest step took {seconds:.1f} s and must outlast the 4 s of a stall to show anything")
    return f"a step of {seconds:.1f} s"


def without_the_devices_marks_it_is_one(suite: Suite) -> str:
    done = train_long_steps(suite, "long-steps-unseen", 6, "rank=0 action=hide_progress")
    if "nothing has moved" not in done.stderr:
        raise Problem(f"it ended for another reason:\n{done.stderr[-2000:]}")
    return "so long-steps can fail"


def nccl_fails_on_one_rank(suite: Suite) -> str:
    if suite.device == "cpu":
        raise Skip("needs a GPU")
    run = suite.train("nccl-fails-on-one-rank", *COMMON, *TWO, "--dtype", "f32", env={"LOCKSTEP_TEST_FAULT": "rank=1 action=nccl"})
    if run.summary()["backend"] != "cpu":
        raise Problem(f"ran over {run.summary()['backend']}, not cpu")
    if "All ranks fall back" not in (run.folder / "metrics.jsonl").read_text():
        raise Problem("nobody said why")
    return "both ranks fell back"


CASES = [Case("nccl-fails-on-one-rank", 15, nccl_fails_on_one_rank), Case("long-steps", 60, a_long_step_is_no_stall),
         Case("long-steps-unseen", 30, without_the_devices_marks_it_is_one)]
