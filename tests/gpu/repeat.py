#!/usr/bin/env python3
"""What a GPU gives twice: runs and resumed runs under trainer.deterministic are the same bits, and without it near each other.

    python3 tests/gpu/repeat.py                # everything, some 2 minutes
    python3 tests/gpu/repeat.py --only lora    # one kind of training
    python3 tests/gpu/repeat.py --device cpu   # how the script itself is tried: there everything is the same bits

Needs only python3 and a build. Losses come from metrics.jsonl, numbers from the last checkpoint, tensor by tensor.
"""
import argparse
import json
import os
import pathlib
import shutil
import struct
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
STEPS, HALF = 12, 6
SHAPE = ["--hidden-size", "256", "--num-layers", "4", "model.num_heads=4", "model.kv_heads=2", "model.intermediate_size=512", "model.vocab_size=1024",
         "data.kind=stories", "data.seq_len=128", "trainer.global_batch_size=16", "trainer.batch_size=8"]
LORA = ["lora.enabled=true", "lora.rank=8", "lora.target_modules=all-linear", "lora.dropout=0.1"]
KINDS = {"bf16": ["--dtype", "bf16"],
         "f32": ["--dtype", "f32"],
         "bf16-states": ["--dtype", "bf16", "--optimizer-states", "bf16"],
         "adafactor": ["--dtype", "bf16", "--optimizer", "adafactor"],
         "muon": ["--dtype", "bf16", "--optimizer", "muon"],
         "lora": ["--dtype", "bf16", *LORA],
         "fp8": ["--dtype", "bf16", "trainer.fp8=true"]}
NEAR = 2e-2  # of a loss: bf16 and sums in another order, over 12 steps of a model that still learns fast


class Wrong(Exception):
    pass


def tensors(folder):
    """Every tensor of a checkpoint: its type, shape and bytes by file and name."""
    found = {}
    for path in sorted(folder.glob("*.safetensors")):
        data = path.read_bytes()
        (length,) = struct.unpack_from("<Q", data)
        for name, entry in json.loads(data[8:8 + length]).items():
            if name != "__metadata__":
                begin, end = entry["data_offsets"]
                found[path.name.split("-")[0], name] = (entry["dtype"], entry["shape"], data[8 + length + begin:8 + length + end])
    if not found:
        raise Wrong(f"no tensors in {folder}")
    return found


class Trainer:
    def __init__(self, lockstep, folder, device):
        self.lockstep, self.folder, self.device = lockstep, folder, device

    def train(self, name, *settings):
        command = [self.lockstep, "train", "--output", self.folder, "--name", name, *self.device, *SHAPE, "--max-steps", STEPS, "trainer.warmup_steps=4",
                   "trainer.log_interval=1", f"trainer.save_interval={HALF}", "trainer.eval_interval=0", "trainer.eval_batches=1", "monitor.sample_tokens=0",
                   "checkpoint.export_at_end=false", *settings]
        done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=300, env={**os.environ})
        if done.returncode != 0:
            raise Wrong(f"{' '.join(map(str, command))}\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}")
        return self.losses(name)

    def losses(self, name):
        lines = map(json.loads, (self.folder / name / "metrics.jsonl").read_text().splitlines())
        return [line["loss"] for line in lines if "loss" in line]

    def checkpoint(self, name, step=STEPS):
        return self.folder / name / "checkpoints" / f"step-{step:06}"

    def resume(self, name, *settings):
        """From the half of a finished run, whose end is taken away."""
        shutil.copytree(self.folder / name, self.folder / f"{name}-resumed")
        shutil.rmtree(self.checkpoint(f"{name}-resumed"))
        losses = self.train(f"{name}-resumed", *settings, "--resume", "auto")
        if not self.checkpoint(f"{name}-resumed").is_dir():
            raise Wrong("the resumed run did not come to its end")
        return losses

    def same_bits(self, a, b):
        left, right = tensors(self.checkpoint(a)), tensors(self.checkpoint(b))
        if left.keys() != right.keys():
            raise Wrong(f"{a} and {b} hold different tensors: {sorted(left.keys() ^ right.keys())[:4]}")
        differing = [name for name in left if left[name] != right[name]]
        if differing:
            raise Wrong(f"{len(differing)} of {len(left)} tensors of {b} differ from {a}'s, first {differing[0]}")


def deterministic(trainer, settings):
    settings = [*settings, "--deterministic"]
    first, second = trainer.train("one", *settings), trainer.train("two", *settings)
    if first != second:
        raise Wrong(f"the same run twice: losses {first} and {second}")
    trainer.same_bits("one", "two")
    if (resumed := trainer.resume("one", *settings)) != first:
        raise Wrong(f"resumed: losses {resumed}, never stopped: {first}")
    trainer.same_bits("one", "one-resumed")


def as_it_comes(trainer, settings):
    whole, resumed = trainer.train("one", *settings), trainer.resume("one", *settings)
    if len(resumed) != STEPS or resumed[:HALF] != whole[:HALF]:
        raise Wrong(f"a resumed run keeps the lines before its checkpoint: {resumed} and {whole}")
    worst = max(abs(a / b - 1) for a, b in zip(resumed, whole, strict=True))
    if not worst <= NEAR:
        raise Wrong(f"resumed: losses differ by {worst:.1e}, more than {NEAR:.0e}: {resumed[HALF:]} and {whole[HALF:]}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lockstep", default=str(ROOT / "build" / "bin" / "lockstep"))
    parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"])
    parser.add_argument("--only", help=f"comma-separated: {', '.join(KINDS)}")
    asked = parser.parse_args()
    names = asked.only.split(",") if asked.only else [name for name in KINDS if asked.device == "cuda" or name != "fp8"]
    device = ["--gpus", "0"] if asked.device == "cuda" else ["--device", "cpu", "--ranks", "1"]
    failed = 0
    for name in names:
        for way in (deterministic, as_it_comes):
            start, problem = time.monotonic(), ""
            with tempfile.TemporaryDirectory() as folder:
                try:
                    way(Trainer(asked.lockstep, pathlib.Path(folder), device), KINDS[name])
                except (Wrong, subprocess.TimeoutExpired) as why:
                    problem = str(why)
            failed += bool(problem)
            print(f"{'FAIL' if problem else 'ok  '} {name} {way.__name__.replace('_', ' '):30} {time.monotonic() - start:6.1f} s", flush=True)
            if problem:
                print(f"       {problem}", flush=True)
    print(f"{2 * len(names) - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
