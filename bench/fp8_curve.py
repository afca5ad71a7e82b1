#!/usr/bin/env python3
"""Trains the same model three times from the same seed and on the same batches: in bf16, with trainer.fp8, and in bf16 again with its batch in
two halves, which changes the order of sums and nothing else. Compares the loss curves.

    python3 bench/fp8_curve.py                      # models/small.yaml on Python's own sources, 200 steps
    python3 bench/fp8_curve.py --model models/llama-3.2-1b.yaml --batch 8
    python3 bench/fp8_curve.py --data stories --learning-rate 1e-4 --warm-up 200
    python3 bench/fp8_curve.py --data tokens.bin --steps 400 -- --hidden-size 1024 data.token_type=u16

Prints the losses, smoothed over 20 steps, and how far the second and the third run are from the first. The third tells how far rounding alone
takes two runs apart: nothing smaller can be said about FP8. Exits with 1 if FP8 is more than 1 % away at any step, with 2 if a run fails.
The text is the running Python's standard library and packages (bench/python_text.py), of which lockstep makes a tokenizer and tokens; machines
with other versions of them measure on other text. On the built-in stories rounding alone has parted two runs by more than 1 %.
FP8 needs a GPU; with another setting under test everything else runs without one:

    python3 bench/fp8_curve.py --under-test model.dtype=f32 --model models/nano.yaml --steps 40 --batch 4 --seq 128 --warm-up 10 --text-bytes 2000000
"""
import argparse
import json
import math
import pathlib
import shutil
import statistics
import sys
import tempfile
import time
import typing

import python_text
from python_text import Failed, run

ROOT = pathlib.Path(__file__).resolve().parent.parent
BAR = 0.01


class Difference(typing.NamedTuple):
    """How far a curve is from another, as shares of the other; largest and final with their sign, the median without."""
    largest: float
    step: int  # of the largest, from 1
    median: float
    final: float


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lockstep", default=str(ROOT / "build" / "bin" / "lockstep"), help="the program")
    parser.add_argument("--model", default=str(ROOT / "models" / "small.yaml"), help="a run file; its shape is what counts")
    parser.add_argument("--data", default="python", help="python (this interpreter's sources), stories (built in), or a file for `lockstep train --data`")
    parser.add_argument("--text-bytes", type=int, default=32_000_000, help="sources to take with --data python")
    parser.add_argument("--vocab-size", type=int, default=16384, help="tokens to learn with --data python")
    parser.add_argument("--under-test", default="trainer.fp8=true", metavar="SETTING", help="what the second run has and the first has not")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--batch", type=int, default=32, help="samples a step, an even number")
    parser.add_argument("--seq", type=int, default=1024, help="tokens of a sample")
    parser.add_argument("--learning-rate", type=float, help="default: the model file's (6e-4 for small)")
    parser.add_argument("--warm-up", type=int, default=100, help="steps in which the learning rate rises; the file's schedule follows")
    parser.add_argument("--smooth", type=int, default=20, help="steps a mean is taken over")
    parser.add_argument("more", nargs="*", help="settings for all three runs, after --")
    asked = parser.parse_args()
    if asked.batch < 2 or asked.batch % 2:
        parser.error(f"--batch {asked.batch} has no halves: use an even number")
    if not 1 <= asked.smooth <= asked.steps:
        parser.error(f"--smooth {asked.smooth} has to be from 1 to the {asked.steps} of --steps")
    if not shutil.which(asked.lockstep):
        parser.error(f"--lockstep {asked.lockstep} is no program: build it (make build), or name another")
    return asked


def say(words, end="\n"):
    print(words, end=end, file=sys.stderr, flush=True)


def data_settings(asked, folder):
    """What the runs are trained on, as settings; makes the tokens if they are to be Python's sources."""
    if asked.data == "stories":
        return ["data.kind=stories"]
    if asked.data != "python":
        return ["data.kind=auto", f"data.path={asked.data}"]
    say("text: ", end="")
    start = time.monotonic()
    texts, size = python_text.choose(python_text.source_folders(), asked.text_bytes)
    if not texts:
        raise Failed(f"no Python source fits into --text-bytes {asked.text_bytes}; looked into {', '.join(map(str, python_text.source_folders()))}")
    path, vocabulary = python_text.make_tokens(asked.lockstep, texts, folder, asked.vocab_size)
    tokens = path.stat().st_size // 4
    passes = asked.steps * asked.batch * asked.seq / tokens
    say(f"{len(texts):,} files, {size / 1e6:.1f} MB, {tokens:,} tokens of {vocabulary:,}, of which a run reads {passes:.1%}; {time.monotonic() - start:.1f} s")
    return ["data.kind=bin", f"data.path={path}", "data.token_type=u32", f"model.vocab_size={vocabulary}"]


def train(asked, output, name, settings):
    """The losses of a run, and its median tokens a second."""
    command = [asked.lockstep, "train", "-f", asked.model, "--output", output, "--name", name, "--ranks", "1",
               f"data.seq_len={asked.seq}", f"trainer.batch_size={asked.batch}", f"trainer.global_batch_size={asked.batch}",
               "model.dtype=bf16", f"trainer.max_steps={asked.steps}", f"trainer.warmup_steps={asked.warm_up}", "trainer.log_interval=1",
               "trainer.eval_interval=0", "trainer.save_interval=0", "checkpoint.save_at_end=false", "monitor.sample_tokens=0", *settings]
    say(f"{name}: ", end="")
    start = time.monotonic()
    run(*command)
    lines = map(json.loads, (output / name / "metrics.jsonl").read_text().splitlines())
    steps = [line for line in lines if "loss" in line and "step" in line]
    if len(steps) != asked.steps:
        raise Failed(f"{asked.steps} steps were asked for, but the {name} run wrote {len(steps)}")
    curve = [line["loss"] for line in steps]
    for line in steps:
        if line["loss"] is None or not math.isfinite(line["loss"]):
            raise Failed(f"the {name} run's loss at step {line['step']} is {line['loss']}")
    say(f"{asked.steps} steps, loss {curve[0]:.3f} to {curve[-1]:.3f}, {time.monotonic() - start:.1f} s")
    rates = [line["tokens_per_second"] for line in steps[asked.steps // 4:] if "tokens_per_second" in line]
    return curve, statistics.median(rates) if rates else None


def smoothed(curve, width):
    """Each value becomes the mean of itself and the up to width - 1 before it."""
    return [statistics.fmean(curve[max(0, i - width + 1):i + 1]) for i in range(len(curve))]


def difference(base, other):
    shares = [y / x - 1 for x, y in zip(base, other, strict=True)]
    at = max(range(len(shares)), key=lambda i: abs(shares[i]))
    return Difference(shares[at], at + 1, statistics.median(map(abs, shares)), shares[-1])


def print_curves(plain, tested, halves, every):
    print("step      bf16  under test  difference   bf16 in halves  difference   (losses, smoothed)")
    for i in range(every - 1, len(plain), every):
        print(f"{i + 1:4d}  {plain[i]:8.4f}  {tested[i]:10.4f}  {tested[i] / plain[i] - 1:+10.3%}   {halves[i]:14.4f}  {halves[i] / plain[i] - 1:+10.3%}")


def main():
    asked = arguments()
    with tempfile.TemporaryDirectory(prefix="lockstep-curve-") as folder:
        output = pathlib.Path(folder)
        common = data_settings(asked, output)
        if asked.learning_rate is not None:
            common.append(f"trainer.learning_rate={asked.learning_rate}")
        common += asked.more
        plain, plain_rate = train(asked, output, "bf16", common)
        tested, tested_rate = train(asked, output, "under-test", [*common, asked.under_test])
        halves, _ = train(asked, output, "halves", [*common, f"trainer.batch_size={asked.batch // 2}"])
    plain, tested, halves = (smoothed(curve, asked.smooth) for curve in (plain, tested, halves))
    print_curves(plain, tested, halves, asked.smooth)
    found = difference(plain, tested)
    for name, apart in ((asked.under_test, found), ("rounding alone", difference(plain, halves))):
        print(f"{name}: largest difference {apart.largest:+.3%} at step {apart.step}, median {apart.median:.3%}, final {apart.final:+.3%}")
    if plain_rate and tested_rate:
        print(f"tokens/s: bf16 {plain_rate:,.0f}, {asked.under_test} {tested_rate:,.0f}")
    within = abs(found.largest) <= BAR
    print(f"{asked.under_test} is {'within' if within else 'beyond'} {BAR:.0%} of bf16")
    return 0 if within else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Failed as why:
        say(f"\n{why}")
        sys.exit(2)
