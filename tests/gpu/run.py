#!/usr/bin/env python3
"""What needs a GPU: kernels against their references, NCCL ranks on one GPU against one rank, every dtype. Needs only python3 with torch."""
import argparse
import importlib.util
import json
import math
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
passed, failed = 0, 0


def library_path() -> str:
    deps = sorted((ROOT / ".deps").glob("lib/python3*/site-packages/torch"))
    torch = deps[0] if deps else pathlib.Path(importlib.util.find_spec("torch").origin).parent
    folders = [torch / "lib", *sorted((torch.parent / "nvidia").glob("*/lib"))]
    return ":".join(map(str, folders))


def report(name: str, problems: list[str], seconds: float) -> None:
    global passed, failed
    passed, failed = passed + (not problems), failed + bool(problems)
    print(f"{'ok  ' if not problems else 'FAIL'} {name:64} {seconds:6.1f} s", flush=True)
    for problem in problems:
        print(f"       {problem}", flush=True)


def run_program(build: pathlib.Path, name: str, gtest_filter: str = "*") -> None:
    global passed, failed
    environment = {**os.environ, "LOCKSTEP_TEST_DEVICE": "cuda:0", "LD_LIBRARY_PATH": library_path(), "LOCKSTEP_OVERSUBSCRIBE": "1"}
    start = time.monotonic()
    done = subprocess.run([build / "bin" / name, "--gtest_brief=1", f"--gtest_filter={gtest_filter}"], capture_output=True, text=True, env=environment)
    good = int((re.findall(r"\[  PASSED  \] (\d+) tests?", done.stdout) or ["0"])[0])
    bad = len(set(re.findall(r"\[  FAILED  \] (\S+?)[,\s]", done.stdout)))
    if done.returncode != 0 and bad == 0:
        bad = 1
    passed, failed = passed + good, failed + bad
    print(f"{'ok  ' if not bad else 'FAIL'} {name:56} {good} passed {time.monotonic() - start:6.1f} s", flush=True)
    if bad:
        print((done.stdout + done.stderr)[-6000:], flush=True)


class Trainer:
    def __init__(self, build: pathlib.Path, folder: pathlib.Path):
        self.build, self.folder = build, folder

    def losses(self, name: str, *args: str) -> tuple[list[float], dict]:
        command = [str(self.build / "bin/lockstep"), "train", "-f", str(ROOT / "models/nano.yaml"), "--output", str(self.folder), "--name", name,
                   "--max-steps", "20", "trainer.log_interval=1", "trainer.eval_batches=1", "trainer.global_batch_size=16", "trainer.warmup_steps=5",
                   "monitor.sample_tokens=0", *args]
        done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "LOCKSTEP_OVERSUBSCRIBE": "1"}, timeout=300)
        if done.returncode != 0:
            raise RuntimeError(f"{' '.join(command)}\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}")
        lines = [json.loads(line) for line in (self.folder / name / "metrics.jsonl").read_text().splitlines()]
        return [line["loss"] for line in lines if "loss" in line], json.loads((self.folder / name / "summary.json").read_text())

    def compare(self, name: str, expected: list[float], tolerance: float, *args: str, backend: str | None = None) -> None:
        start = time.monotonic()
        problems = []
        try:
            losses, summary = self.losses(name, *args)
            if len(losses) != len(expected):
                problems.append(f"{len(losses)} losses, not {len(expected)}")
            worst = max(abs(a - b) / abs(b) if math.isfinite(a) else math.inf for a, b in zip(losses, expected))
            if not worst <= tolerance:
                problems.append(f"losses differ by {worst:.2e}, more than {tolerance:.0e}: {losses[-3:]} and {expected[-3:]}")
            if backend and summary["backend"] != backend:
                problems.append(f"ran over {summary['backend']}, not {backend}")
            name = f"{name} (worst {worst:.1e})"
        except (RuntimeError, subprocess.TimeoutExpired) as error:
            problems.append(str(error))
        report(name, problems, time.monotonic() - start)


def compare_training(build: pathlib.Path) -> None:
    with tempfile.TemporaryDirectory() as folder:
        trainer = Trainer(build, pathlib.Path(folder))
        one, summary = trainer.losses("gpu-f32", "--gpus", "0", "--dtype", "f32", "--batch-size", "16")
        print(f"     on {summary['device']}", flush=True)
        two = ["--gpus", "0", "--ranks", "2", "--batch-size", "8"]
        trainer.compare("cpu-f32", one, 1e-3, "--device", "cpu", "--ranks", "1", "--batch-size", "16")
        trainer.compare("accumulation", one, 1e-4, "--gpus", "0", "--dtype", "f32", "--batch-size", "4")
        trainer.compare("kernel-by-kernel", one, 1e-4, "--gpus", "0", "--dtype", "f32", "--batch-size", "16", "trainer.cuda_graphs=false")
        trainer.compare("nccl-two-ranks-accumulation", one, 1e-4, "--gpus", "0", "--ranks", "2", "--batch-size", "2", "--dtype", "f32",
                        "--sync-backend", "nccl", "trainer.eval_interval=6", "parallel.check_divergence=5", backend="nccl")
        trainer.compare("nccl-two-ranks", one, 1e-4, *two, "--dtype", "f32", "--sync-backend", "nccl", backend="nccl")
        trainer.compare("cpu-backend-two-ranks", one, 1e-4, *two, "--dtype", "f32", "--sync-backend", "cpu", backend="cpu")
        trainer.compare("gloo-two-ranks", one, 1e-4, *two, "--dtype", "f32", "--sync-backend", "gloo")
        for dtype in ("bf16", "f16"):
            trainer.compare(f"{dtype}-one-rank", one, 1e-2, "--gpus", "0", "--dtype", dtype, "--batch-size", "16")
            trainer.compare(f"{dtype}-nccl-two-ranks", one, 1e-2, *two, "--dtype", dtype, "--sync-backend", "nccl", backend="nccl")
        trainer.compare("bf16-states-one-rank", one, 2e-2, "--gpus", "0", "--dtype", "bf16", "--optimizer-states", "bf16", "--batch-size", "16")
        trainer.compare("bf16-states-nccl-two-ranks", one, 2e-2, *two, "--dtype", "bf16", "--optimizer-states", "bf16", "parallel.check_divergence=5")
        trainer.compare("adamw-8bit-one-rank", one, 2e-2, "--gpus", "0", "--dtype", "bf16", "--optimizer", "adamw_8bit", "--batch-size", "16")
        trainer.compare("bf16-nccl-reduced-in-f32", one, 1e-2, *two, "--dtype", "bf16", "parallel.reduce_dtype=f32", "parallel.check_divergence=5")


def main() -> int:
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--build", default="build")
    arguments.add_argument("--only", choices=["kernels", "ranks", "training"])
    options = arguments.parse_args()
    build = (ROOT / options.build).resolve()
    if options.only in (None, "kernels"):
        run_program(build, "model_tests")
        run_program(build, "train_tests")
    if options.only in (None, "ranks"):
        run_program(build, "comm_tests", "-Failures.LostRank*")
        run_program(build, "parallel_tests", "Sizes/*:Replicas.Start*:Types/*-Sizes/*/4")  # four NCCL ranks on one GPU wait for each other's time slices
    if options.only in (None, "training"):
        compare_training(build)
    print(f"{passed} passed, {failed} failed")
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
