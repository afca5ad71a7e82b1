#!/usr/bin/env python3
"""Trains the same model three times from the same seed and on the same batches: in bf16, with trainer.fp8, and in bf16 again with its batch in
two halves, which changes the order of sums and nothing else. Compares the loss curves.
  python3 bench/fp8_curve.py                      # models/small.yaml on the built-in stories, 200 steps
  python3 bench/fp8_curve.py --steps 400 --batch 32 -- --hidden-size 1024
Prints the curves every 20 steps and the largest relative difference of the losses, smoothed over 20 steps. The third run tells how far
rounding alone takes two runs apart: where the loss falls steeply, that can be more than the bar. Exits with 1 if FP8 is more than 1 % apart.
"""
import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
BAR = 0.01


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lockstep", default=str(ROOT / "build" / "bin" / "lockstep"))
    parser.add_argument("--model", default=str(ROOT / "models" / "small.yaml"))
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--batch", type=int, default=32, help="samples a step")
    parser.add_argument("--seq", type=int, default=1024)
    parser.add_argument("--learning-rate", type=float, default=1e-4)
    parser.add_argument("--warm-up", type=int, default=200, help="steps in which the learning rate rises; runs of weeks take thousands")
    parser.add_argument("--smooth", type=int, default=20, help="steps a mean is taken over")
    parser.add_argument("more", nargs="*", help="settings for both runs, after --")
    return parser.parse_args()


def losses(asked, output, name, *settings):
    command = [asked.lockstep, "train", "-f", asked.model, "--output", output, "--name", name, "--ranks", "1",
               f"data.seq_len={asked.seq}", f"trainer.batch_size={asked.batch}", f"trainer.global_batch_size={asked.batch}",
               "model.dtype=bf16", f"trainer.max_steps={asked.steps}", f"trainer.learning_rate={asked.learning_rate}",
               f"trainer.warmup_steps={asked.warm_up}", "trainer.log_interval=1", "trainer.eval_interval=0", "trainer.save_interval=0",
               "checkpoint.save_at_end=false", "monitor.sample_tokens=0", *settings, *asked.more]
    done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    if done.returncode != 0:
        sys.exit(f"the {name} run ended with {done.returncode}:\n{done.stderr}")
    lines = (pathlib.Path(output) / name / "metrics.jsonl").read_text().splitlines()
    steps = [line for line in map(json.loads, lines) if "loss" in line and "step" in line]
    if len(steps) != asked.steps:
        sys.exit(f"{asked.steps} steps were asked for, but {name} wrote {len(steps)}")
    rate = sorted(line["tokens_per_second"] for line in steps[10:] if "tokens_per_second" in line)
    return smoothed([line["loss"] for line in steps], asked.smooth), rate[len(rate) // 2] if rate else None


def smoothed(curve, width):
    return [sum(curve[max(0, i - width + 1):i + 1]) / min(width, i + 1) for i in range(len(curve))]


def largest(base, other):
    return max((abs(y / x - 1), i + 1) for i, (x, y) in enumerate(zip(base, other)))


def main():
    asked = arguments()
    with tempfile.TemporaryDirectory() as output:
        plain, plain_rate = losses(asked, output, "bf16")
        fp8, fp8_rate = losses(asked, output, "fp8", "trainer.fp8=true")
        halves, _ = losses(asked, output, "halves", f"trainer.batch_size={asked.batch // 2}")
    print("step      bf16       fp8  difference   bf16 in halves  difference   (losses, smoothed)")
    for i in range(asked.smooth - 1, asked.steps, asked.smooth):
        print(f"{i + 1:4d}  {plain[i]:8.4f}  {fp8[i]:8.4f}  {fp8[i] / plain[i] - 1:+10.3%}   {halves[i]:14.4f}  {halves[i] / plain[i] - 1:+10.3%}")
    most, step = largest(plain, fp8)
    spread, spread_step = largest(plain, halves)
    print(f"largest difference of FP8 {most:.3%} at step {step}, bar {BAR:.0%}; of rounding alone {spread:.3%} at step {spread_step}")
    if plain_rate and fp8_rate:
        print(f"tokens/s: bf16 {plain_rate:,.0f}, fp8 {fp8_rate:,.0f}")
    return 0 if most <= BAR else 1


if __name__ == "__main__":
    sys.exit(main())
