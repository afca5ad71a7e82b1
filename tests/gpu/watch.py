#!/usr/bin/env python3
"""What only a GPU can show about supervision: steps longer than a stall, counted by the device within CUDA graphs; an NCCL that fails on one rank."""
import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
# 1.1 billion parameters, 32,768 tokens a micro-step: half a second each on an H200, 12 s a step, all of it queued by the host at once.
LONG_STEPS = ["--gpus", "0", "--dtype", "bf16", "model.hidden_size=2048", "model.num_layers=16", "model.num_heads=16", "model.kv_heads=16",
              "model.intermediate_size=8192", "model.max_seq_len=2048", "--seq-len", "2048", "--batch-size", "16", "--grad-accum", "24", "--max-steps", "3",
              "monitor.stall_seconds=2", "monitor.stall_abort_seconds=4", "checkpoint.save_at_end=false"]
TWO_RANKS = ["--gpus", "0", "--ranks", "2", "--batch-size", "8", "--max-steps", "10"]


def train(build: pathlib.Path, folder: pathlib.Path, name: str, arguments: list[str], fault: str = "") -> tuple[subprocess.CompletedProcess, list[dict]]:
    command = [str(build / "bin/lockstep"), "train", "-f", str(ROOT / "models/nano.yaml"), "--output", str(folder), "--name", name, "trainer.log_interval=1",
               "trainer.eval_interval=0", "data.validation_fraction=0", "trainer.save_interval=0", "trainer.warmup_steps=1", "monitor.sample_tokens=0", *arguments]
    environment = {**os.environ, "LOCKSTEP_OVERSUBSCRIBE": "1", "LOCKSTEP_TEST_FAULT": fault}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=240)
    metrics = folder / name / "metrics.jsonl"
    return done, [json.loads(line) for line in metrics.read_text().splitlines()] if metrics.exists() else []


def a_long_step_is_no_stall(build: pathlib.Path, folder: pathlib.Path) -> list[str]:
    done, lines = train(build, folder, "long", LONG_STEPS)
    seconds = [line["step_seconds"] for line in lines if "loss" in line]
    problems = [] if done.returncode == 0 else [f"exit {done.returncode}: {done.stderr[-2000:]}"]
    if "nothing has moved" in done.stdout + done.stderr:
        problems.append("a step at work was called a stall")
    if len(seconds) != 3 or max(seconds) < 5:
        problems.append(f"steps must outlast the 4 s of a stall to show anything: {seconds}")
    return problems


def without_the_devices_marks_it_would_be(build: pathlib.Path, folder: pathlib.Path) -> list[str]:
    done, _ = train(build, folder, "hidden", LONG_STEPS, "rank=0 action=hide_progress")
    good = done.returncode == 6 and "nothing has moved" in done.stderr
    return [] if good else [f"exit {done.returncode}, so the test before shows nothing: {done.stderr[-2000:]}"]


def nccl_fails_on_one_rank(build: pathlib.Path, folder: pathlib.Path) -> list[str]:
    done, lines = train(build, folder, "nccl", TWO_RANKS, "rank=1 action=nccl")
    backends = [line["backend"] for line in lines if line.get("event") == "model"]
    problems = [] if done.returncode == 0 else [f"exit {done.returncode}: {done.stderr[-2000:]}"]
    if backends != ["cpu"]:
        problems.append(f"ran over {backends}, not cpu")
    if not any("All ranks fall back" in line.get("text", "") for line in lines):
        problems.append("nobody said why")
    return problems


def main() -> int:
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--build", default="build")
    build = (ROOT / arguments.parse_args().build).resolve()
    failed = 0
    for case in (nccl_fails_on_one_rank, a_long_step_is_no_stall, without_the_devices_marks_it_would_be):
        start = time.monotonic()
        with tempfile.TemporaryDirectory() as folder:
            try:
                problems = case(build, pathlib.Path(folder))
            except subprocess.TimeoutExpired as error:
                problems = [str(error)]
        failed += bool(problems)
        print(f"{'FAIL' if problems else 'ok  '} {case.__name__:64} {time.monotonic() - start:6.1f} s", flush=True)
        for problem in problems:
            print(f"       {problem}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
