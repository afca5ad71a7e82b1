#!/usr/bin/env python3
"""Ours and Hugging Face on one GPU, one after another, and the ratios.

    python3 bench/compare.py --model qwen2.5-0.5b --model llama-3.2-1b
    python3 bench/compare.py --model llama-3.2-1b --lora 16 --recompute norms

Each measurement is a process of its own on an otherwise idle GPU. Where a baseline's batch does not fit, half of it is tried; its
tokens a second count all the same. Ours keeps f32 master weights and moments and updates every batch; the baseline's are bf16.
Needs a built lockstep, and torch and transformers (for --lora also peft) in this python3.
"""
import argparse
import datetime
import json
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
# The work that docs/performance.md lists: sequence length and batch.
USUAL = {"qwen2.5-0.5b": (1024, 32), "qwen2.5-1.5b": (1024, 32), "qwen2.5-7b": (1024, 8), "llama-3.2-1b": (2048, 4),
         "llama-3.1-8b": (4096, 2), "small": (1024, 32)}


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


def row(name: str, result: dict | None, why: str, first: dict | None) -> str:
    if not result:
        return f"  {name:<28} {why}"
    memory = result["peak_memory_bytes"]
    ratio = f"{first['tokens_per_second'] / result['tokens_per_second']:6.2f}x" if first else ""
    return (f"  {name:<28} {result['batch_size']:>5} {result['step_seconds']['median'] * 1e3:>10.2f} ms {result['tokens_per_second']:>10.0f}"
            f" {memory / 2**30 if memory else float('nan'):>8.1f} GiB {ratio:>10}")


def compare(args, model: str) -> list[dict]:
    seq, batch = USUAL.get(model, (1024, 8))
    seq, batch = args.seq or seq, args.batch or batch
    what = f"LoRA of rank {args.lora}" if args.lora else "all weights"
    print(f"{model}, {what}, seq {seq}, {args.dtype}, an update every batch", flush=True)
    print(f"  {'':<28} {'batch':>5} {'step':>13} {'tokens/s':>10} {'peak memory':>12} {'ours is':>10}", flush=True)
    results = []
    first, why = ours(args, model, seq, batch)
    print(row("lockstep, f32 states", first, why, None), flush=True)
    results.append({"who": "lockstep", **(first or {"failed": why})})
    for mode in args.modes.split(","):
        result, why = baseline(args, model, mode, seq, batch)
        print(row(f"hugging face, {mode}", result, why, first), flush=True)
        results.append({"who": f"hugging face {mode}", **(result or {"failed": why, "model": model})})
    return results


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", action="append", help="name of a file in models/; may be given several times")
    parser.add_argument("--seq", type=int, help="tokens a sequence, for all models")
    parser.add_argument("--batch", type=int, help="sequences a batch, for all models")
    parser.add_argument("--lora", type=int, default=0, help="rank of adapters beside frozen weights; 0: all weights are trained")
    parser.add_argument("--recompute", help="ours: none, norms, qkv or blocks; left out, by what fits")
    parser.add_argument("--modes", default="eager,compile", help="of the baseline")
    parser.add_argument("--dtype", choices=["bf16", "f32"], default="bf16")
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--warm-up", type=int, default=5)
    parser.add_argument("--timeout", type=float, default=300, help="seconds one measurement may take")
    parser.add_argument("--lockstep", type=pathlib.Path, default=ROOT / "build" / "bin" / "lockstep")
    parser.add_argument("--json", type=pathlib.Path, help="write everything measured to this file")
    args = parser.parse_args()
    results = []
    for model in args.model or ["qwen2.5-0.5b", "llama-3.2-1b"]:
        results += compare(args, model)
    if args.json:
        args.json.write_text(json.dumps({"date": datetime.date.today().isoformat(), "results": results}, indent=1) + "\n")
    return 0 if all("failed" not in result for result in results) else 1


if __name__ == "__main__":
    sys.exit(main())
