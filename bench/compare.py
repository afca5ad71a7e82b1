#!/usr/bin/env python3
"""Ours and Hugging Face on one GPU in turn, and the ratios, whichever way they point.

    python3 bench/compare.py --model qwen2.5-0.5b --model llama-3.2-1b
    python3 bench/compare.py --model llama-3.2-1b --lora 16 --recompute norms

Each measurement is a process of its own on an otherwise idle GPU. Sides take turns, round after round, and every other round begins
with the last one, so that a chip that gets warm slows all alike; a ratio is the median of the rounds' ratios. Where a baseline's batch does
not fit, half of it is tried; its tokens a second count all the same. Ours keeps f32 master weights and moments and updates every batch;
the baseline's are bf16. Both sides must have the same number of parameters. Versions and the attention that was used are recorded.
Needs a built lockstep, and torch and transformers (for --lora also peft) in this python3. Results are appended to bench/measured/compare.json,
from which bench/tables.py makes the table of docs/performance.md.
"""
import argparse
import json
import pathlib
import shlex
import statistics
import subprocess
import sys
import time
import typing

ROOT = pathlib.Path(__file__).resolve().parent.parent
# The work that docs/performance.md lists: sequence length and batch.
USUAL = {"qwen2.5-0.5b": (1024, 32), "qwen2.5-1.5b": (1024, 32), "qwen2.5-7b": (1024, 8), "llama-3.2-1b": (2048, 4),
         "llama-3.1-8b": (4096, 2), "small": (1024, 32)}
OURS = "lockstep, f32 states"


def last_json(text: str) -> dict | None:
    lines = [line for line in text.splitlines() if line.startswith("{")]
    return json.loads(lines[-1]) if lines else None


def run(command: list, timeout: float) -> tuple[dict | None, str]:
    """The JSON a command printed, or why there is none."""
    try:
        done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=timeout)
    except subprocess.TimeoutExpired:
        return None, f"did not end within {timeout:.0f} s"
    if done.returncode != 0:
        text = done.stderr.strip()
        memory = "out of memory" in text.lower() or "[memory]" in text
        return None, "out of memory" if memory else (text.splitlines() or ["no word"])[-1][:200]
    return last_json(done.stdout), ""


def ours(args, model: str, seq: int, batch: int) -> tuple[dict | None, str]:
    more = ["--lora", "--lora-rank", args.lora] if args.lora else []
    more += ["--recompute", args.recompute] if args.recompute else []
    return run([args.lockstep, "bench", "step", "--model", model, "--seq", seq, "--batch", batch, "--dtype", args.dtype, "--device", args.device,
                "--steps", args.steps, "--warm-up", args.warm_up, "--json", *more], args.timeout)


def baseline(args, model: str, mode: str, seq: int, batch: int) -> tuple[dict | None, str]:
    why = ""
    while batch >= 1:
        result, why = run([sys.executable, ROOT / "bench" / "hf_baseline.py", "--model", ROOT / "models" / f"{model}.yaml", "--mode", mode, "--seq", seq,
                           "--batch", batch, "--dtype", args.dtype, "--device", args.device, "--steps", args.steps, "--warm-up", args.warm_up,
                           "--lora", args.lora], args.timeout)
        if result or why != "out of memory":
            return result, why
        batch //= 2
    return None, why


def take_turns(args, model: str, seq: int, batch: int) -> typing.Iterator[dict[str, list[dict]]]:
    """Every side's results, one a round, after each whole round; a side that fails once is left out of later ones."""
    sides = {OURS: lambda: ours(args, model, seq, batch)}
    for mode in args.modes.split(","):
        sides[f"Hugging Face, {mode}"] = lambda mode=mode: baseline(args, model, mode, seq, batch)
    results = {who: [] for who in sides}
    for number in range(args.rounds):
        order = list(sides) if number % 2 == 0 else list(reversed(sides))
        for who in order:
            if results[who] and "failed" in results[who][-1]:
                continue
            result, why = sides[who]()
            results[who].append(result or {"failed": why})
            told = why if not result else f"{result['tokens_per_second']:.0f} tokens/s, batch {result['batch_size']}"
            print(f"  round {number + 1} of {args.rounds}: {who:<28} {told}", flush=True)
        yield results


def side_of(who: str, results: list[dict], first: list[dict]) -> dict:
    good = [result for result in results if "failed" not in result]
    if not good:
        return {"who": who, "failed": results[-1]["failed"]}
    side = {"who": who, "batch": good[0]["batch_size"], "tokens_per_second": statistics.median(r["tokens_per_second"] for r in good),
            "peak_memory_bytes": max(r["peak_memory_bytes"] or 0 for r in good), "raw": [r["raw_step_seconds"] for r in good]}
    if who != OURS and "failed" not in first[0]:
        side["ratios"] = [a["tokens_per_second"] / b["tokens_per_second"] for a, b in zip(first, good)]
        side["ratio"] = statistics.median(side["ratios"])
    return side


def versions(args, results: dict[str, list[dict]]) -> dict:
    told = {"lockstep": subprocess.run([str(args.lockstep), "--version"], capture_output=True, text=True).stdout.strip()}
    for found in results.values():
        for result in found:
            told |= {key: result[key] for key in ("torch", "transformers", "peft", "attention", "device") if result.get(key)}
    return told


def compare(args, model: str) -> dict:
    """Each whole round is kept at once: who is cut off has what was measured."""
    seq, batch = USUAL.get(model, (1024, 8))
    seq, batch = args.seq or seq, args.batch or batch
    what = f"LoRA of rank {args.lora}" if args.lora else "all weights"
    print(f"{model}, {what}, seq {seq}, {args.dtype}, an update every batch", flush=True)
    for rounds, results in enumerate(take_turns(args, model, seq, batch), 1):
        counts = {result["parameters"] for found in results.values() for result in found if "failed" not in result}
        if len(counts) > 1 and not args.lora:  # PEFT counts its adapters among them
            raise SystemExit(f"not the same model on both sides: {sorted(counts)} parameters")
        one = {"model": model, "what": what, "seq": seq, "batch": batch, "rounds": rounds, "at": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
               "command": shlex.join(["python3", "bench/compare.py", *what_matters(sys.argv[1:])]), "versions": versions(args, results),
               "sides": [side_of(who, found, results[OURS]) for who, found in results.items()]}
        keep(args.json, one)
    for side in one["sides"]:
        told = side.get("failed") or f"{side['tokens_per_second']:>10.0f} tokens/s {side['peak_memory_bytes'] / 2**30:>8.1f} GiB"
        print(f"  {side['who']:<28} {told}" + (f"   ours is {side['ratio']:.2f} times as fast" if "ratio" in side else ""), flush=True)
    return one


def what_matters(words: list[str]) -> list[str]:
    """Without where results go, which is this machine's business."""
    at = words.index("--json") if "--json" in words else len(words)
    return words[:at] + words[at + 2:]


def keep(path: pathlib.Path, new: dict) -> None:
    """Beside what is there; the same model and work is replaced."""
    kept = json.loads(path.read_text())["comparisons"] if path.exists() else []
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_suffix(".part")
    beside.write_text(json.dumps({"comparisons": [one for one in kept if (one["model"], one["what"]) != (new["model"], new["what"])] + [new]}, indent=1) + "\n")
    beside.replace(path)


def whole_rounds(text: str) -> int:
    if int(text) < 1:
        raise argparse.ArgumentTypeError("at least 1")
    return int(text)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", action="append", help="name of a file in models/; may be given several times")
    parser.add_argument("--seq", type=int, help="tokens a sequence, for all models")
    parser.add_argument("--batch", type=int, help="sequences a batch, for all models")
    parser.add_argument("--lora", type=int, default=0, help="rank of adapters beside frozen weights; 0: all weights are trained")
    parser.add_argument("--recompute", help="ours: none, norms, qkv or blocks; left out, by what fits")
    parser.add_argument("--modes", default="eager,compile", help="of the baseline")
    parser.add_argument("--rounds", type=whole_rounds, default=3)
    parser.add_argument("--dtype", choices=["bf16", "f32"], default="bf16")
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--warm-up", type=int, default=5)
    parser.add_argument("--timeout", type=float, default=300, help="seconds one measurement may take")
    parser.add_argument("--lockstep", type=pathlib.Path, default=ROOT / "build" / "bin" / "lockstep")
    parser.add_argument("--json", type=pathlib.Path, default=ROOT / "bench" / "measured" / "compare.json", help="file that results are added to")
    args = parser.parse_args()
    made = [compare(args, model) for model in args.model or ["qwen2.5-0.5b", "llama-3.2-1b"]]
    return 0 if all("failed" not in side for one in made for side in one["sides"]) else 1


if __name__ == "__main__":
    sys.exit(main())
