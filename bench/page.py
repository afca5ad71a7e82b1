#!/usr/bin/env python3
"""Measures the GPU rows of docs/performance.md and README.md with `lockstep train` itself, most telling first.

    python3 bench/page.py                       all rows on this machine's first GPU
    python3 bench/page.py --budget 500          what fits into 500 seconds; called again, it goes on where it stopped
    python3 bench/page.py --only 'lora-*'       rows by name, measured anew
    python3 bench/page.py --list                rows, commands, about how long each takes

A row is one command; its numbers are what that run's summary.json says, copied, never put together. Everything goes to one JSON file
(bench/measured/gpu.json), each row with its command, the program's own version and commit, the machine, and when. Rows of another commit
are measured anew. `python3 bench/tables.py` makes the tables of docs/performance.md and README.md from that file. Needs build/bin,
build/lib and a python3 with torch; no network.
"""
import argparse
import dataclasses
import fnmatch
import importlib.metadata
import json
import os
import pathlib
import shlex
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

from corpus import write_conversations, write_tokenizer

ROOT = pathlib.Path(__file__).resolve().parent.parent
MEASURED = ROOT / "bench" / "measured" / "gpu.json"

# Steps alone, without what happens once a run: nothing is evaluated, sampled or saved. Three steps are left out of averages.
STEPS_ALONE = ["data.validation_fraction=0", "trainer.log_interval=1", "trainer.save_interval=0", "trainer.eval_interval=0", "checkpoint.save_at_end=false",
               "checkpoint.export_at_end=false", "monitor.sample_tokens=0", "trainer.warmup_steps=1"]
LORA = ["lora.enabled=true"]
PACKED = ["--data", "CHAT", "--tokenizer", "TOKENIZER", "data.kind=records", "data.train_on=all", "--packing"]
NORMS, BLOCKS_OFFLOADED = ["--recompute", "norms"], ["--recompute", "blocks", "trainer.offload_checkpoints=true"]


@dataclasses.dataclass(frozen=True)
class Row:
    name: str
    work: str  # as the table says it
    model: str
    batch: int
    seq: int
    accumulation: int
    settings: list = dataclasses.field(default_factory=list)
    steps: int = 12
    seconds: float = 20  # about what it takes on an H200
    kind: str = "train"

    def words(self, device: str) -> list[str]:
        place = ["--gpus", "0"] if device == "cuda" else ["--device", "cpu", "--ranks", "1"]
        if self.kind == "kernels":
            return ["bench", "kernels", "--model", self.model, "--seq", str(self.seq), "--batch", str(self.batch), "--device", device, "--json"]
        return ["train", "-f", f"models/{self.model}.yaml", "--batch-size", str(self.batch), f"trainer.gradient_accumulation={self.accumulation}",
                "--seq-len", str(self.seq), "--max-steps", str(self.steps), *self.settings, *STEPS_ALONE, *place]


ROWS = [
    Row("full-0.5b", "all weights of Qwen2.5-0.5B", "qwen2.5-0.5b", 32, 1024, 4),
    Row("lora-1b", "LoRA of Llama-3.2-1B", "llama-3.2-1b", 4, 2048, 2, LORA + NORMS, 40, 15),
    Row("lora-1b-packed", "the same on packed conversations", "llama-3.2-1b", 4, 2048, 2, LORA + NORMS + PACKED, 40, 25),
    Row("lora-8b", "LoRA of Llama-3.1-8B", "llama-3.1-8b", 2, 4096, 4, LORA + NORMS, 9, 35),
    Row("lora-8b-packed", "the same on packed conversations", "llama-3.1-8b", 2, 4096, 4, LORA + NORMS + PACKED, 9, 40),
    Row("qlora-8b-offload", "LoRA of Llama-3.1-8B over 4 bits a weight, blocks recomputed, their inputs in host memory", "llama-3.1-8b", 2, 4096, 4,
        LORA + ["--load-in-4bit"] + BLOCKS_OFFLOADED, 9, 45),
    Row("full-7b", "all weights of Qwen2.5-7B", "qwen2.5-7b", 8, 1024, 16, steps=7, seconds=85),
    Row("full-7b-fp8", "the same with `--fp8`", "qwen2.5-7b", 8, 1024, 16, ["--fp8"], 7, 65),
    Row("full-1.5b", "all weights of Qwen2.5-1.5B", "qwen2.5-1.5b", 32, 1024, 4, steps=9, seconds=30),
    Row("full-1b", "all weights of Llama-3.2-1B", "llama-3.2-1b", 4, 2048, 16, steps=9, seconds=25),
    Row("first-step", "", "llama-3.2-1b", 4, 2048, 2, kind="first-step", seconds=60),
    Row("small", "all weights of 12 layers of 768", "small", 32, 1024, 4, ["data.kind=random", "trainer.global_batch_size=0"], 20, 15),
    Row("qlora-8b", "LoRA of Llama-3.1-8B over 4 bits a weight", "llama-3.1-8b", 2, 4096, 4, LORA + ["--load-in-4bit"] + NORMS, 9, 40),
    Row("lora-8b-fp8", "LoRA of Llama-3.1-8B with `--fp8`", "llama-3.1-8b", 2, 4096, 4, LORA + NORMS + ["--fp8"], 9, 35),
    Row("lora-8b-offload", "LoRA of Llama-3.1-8B, blocks recomputed, their inputs in host memory", "llama-3.1-8b", 2, 4096, 4, LORA + BLOCKS_OFFLOADED, 9, 40),
    Row("lora-8b-qkv", "LoRA of Llama-3.1-8B; queries, keys and values recomputed too", "llama-3.1-8b", 2, 4096, 4, LORA + ["--recompute", "qkv"], 9, 35),
    Row("lora-1.5b", "LoRA of Qwen2.5-1.5B", "qwen2.5-1.5b", 8, 1024, 4, LORA, 20, 20),
    Row("full-1b-bf16-states", "all weights of Llama-3.2-1B, bf16 states without masters", "llama-3.2-1b", 4, 2048, 16,
        NORMS + ["trainer.optimizer_states=bf16"], 9, 25),
    Row("kernels-8b", "", "llama-3.1-8b", 2, 4096, 1, kind="kernels", seconds=40),
    Row("kernels-small", "", "small", 32, 1024, 1, kind="kernels", seconds=40),
]


class Failed(Exception):
    pass


class Machine:
    """The program, a folder for runs, and data made once."""

    def __init__(self, build: pathlib.Path, device: str):
        self.lockstep, self.device = build / "bin" / "lockstep", device
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="lockstep-page-"))

    def run(self, words: list[str], timeout: float) -> str:
        try:
            done = subprocess.run([str(self.lockstep), *words], capture_output=True, text=True, timeout=timeout, cwd=ROOT)
        except subprocess.TimeoutExpired:
            raise Failed(f"did not end within {timeout:.0f} s") from None
        if done.returncode != 0:
            raise Failed(f"ended with {done.returncode}: {done.stderr[-2000:]}")
        return done.stdout

    def data(self, name: str) -> str:
        """CHAT and TOKENIZER of a row's command."""
        chat, tokenizer = self.folder / "chat.jsonl", self.folder / "tokenizer"
        if name == "CHAT" and not chat.exists():
            write_conversations(chat, 12_000)
        if name == "TOKENIZER" and not tokenizer.exists():
            write_tokenizer(tokenizer)
        return str({"CHAT": chat, "TOKENIZER": tokenizer}.get(name, name))

    def about(self) -> dict:
        about = {"lockstep": self.run(["--version"], 10).strip(), "device": "cpu"}
        if self.device == "cuda":  # this process stays off the GPU: what it took there would be counted
            about |= {"device": query("name"), "torch": importlib.metadata.version("torch"), "driver": query("driver_version")}
        return about


def query(what: str) -> str:
    """What nvidia-smi says of the first GPU; empty where it says nothing."""
    try:
        done = subprocess.run(["nvidia-smi", "-i", "0", f"--query-gpu={what}", "--format=csv,noheader,nounits"], capture_output=True, text=True, timeout=20)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip()


KEPT = ("model", "parameters", "trained_parameters", "device", "ranks", "dtype", "fp8", "activations", "cuda_graph", "batch", "data", "first_step", "last_step",
        "step_seconds", "tokens_per_second", "mfu", "flops_per_token", "memory", "raw_step_seconds", "final_loss")


def measure_training(machine: Machine, row: Row, timeout: float) -> dict:
    name = f"row-{row.name}"
    shutil.rmtree(machine.folder / name, ignore_errors=True)
    words = [machine.data(word) for word in row.words(machine.device)]
    machine.run([*words, "--output", str(machine.folder), "--name", name], timeout)
    summary = json.loads((machine.folder / name / "summary.json").read_text())
    shutil.rmtree(machine.folder / name)
    return {"summary": {key: summary[key] for key in KEPT}}


def measure_kernels(machine: Machine, row: Row, timeout: float) -> dict:
    return {"kernels": json.loads(machine.run(row.words(machine.device), timeout).splitlines()[-1])}


def seconds_to_first_step(machine: Machine, words: list[str], name: str, timeout: float) -> float:
    """From the command to the first line with a loss; the run is then asked to stop."""
    shutil.rmtree(machine.folder / name, ignore_errors=True)
    metrics = machine.folder / name / "metrics.jsonl"
    start = time.perf_counter()
    process = subprocess.Popen([str(machine.lockstep), *words, "--output", str(machine.folder), "--name", name], cwd=ROOT, stdout=subprocess.DEVNULL,
                               stderr=subprocess.PIPE, text=True)
    try:
        while not (metrics.exists() and '"loss"' in metrics.read_text()):
            if process.poll() is not None or time.perf_counter() - start > timeout:
                raise Failed(f"no first step: {process.stderr.read()[-2000:] if process.poll() is not None else 'too late'}")
            time.sleep(0.002)
        return time.perf_counter() - start
    finally:
        if process.poll() is None:
            process.terminate()
        process.wait(60)


WRITE_MODEL = """
import pathlib, sys, torch
from hf_baseline import hugging_face_config, model_shape
from transformers import AutoModelForCausalLM
with torch.device("cuda"):
    model = AutoModelForCausalLM.from_config(hugging_face_config(model_shape(pathlib.Path(sys.argv[1])), int(sys.argv[2])), dtype=torch.bfloat16)
model.save_pretrained(sys.argv[3])
"""


def write_model(machine: Machine, row: Row, timeout: float) -> pathlib.Path:
    """A folder as people download one: safetensors, config.json, a tokenizer of 128,000 tokens."""
    folder = machine.folder / "first-step-model"
    if machine.device == "cuda":
        made = subprocess.run([sys.executable, "-c", WRITE_MODEL, str(ROOT / "models" / f"{row.model}.yaml"), str(row.seq), str(folder)], cwd=ROOT / "bench",
                              capture_output=True, text=True, timeout=timeout)
        if made.returncode != 0:
            raise Failed(f"no model folder: {made.stderr[-1000:]}")
    else:
        machine.run(["train", "-f", "models/nano.yaml", "model.vocab_size=128256", "data.kind=random", "--batch-size", "1", "--max-steps", "1", "data.validation_fraction=0",
                     "monitor.sample_tokens=0", "--output", str(machine.folder), "--name", "first-step-base", "--device", "cpu", "--ranks", "1"], timeout)
        machine.run(["export", "--run", str(machine.folder / "first-step-base"), "--output", str(folder)], timeout)
    for path in pathlib.Path(machine.data("TOKENIZER")).iterdir():
        shutil.copy(path, folder / path.name)
    return folder


def measure_first_step(machine: Machine, row: Row, timeout: float) -> dict:
    """LoRA from a local folder: on conversations that were prepared before, and on random tokens. The first start of each is told apart."""
    place = ["--gpus", "0"] if machine.device == "cuda" else ["--device", "cpu", "--ranks", "1"]
    common = ["train", "-f", "models/llama-3.2-1b-lora.yaml", "--model", str(write_model(machine, row, timeout)), "--batch-size", str(row.batch), *place]
    ways = {"chat": ["--data", machine.data("CHAT")], "random tokens": ["data.kind=random", "data.packing=false"]}
    if machine.device == "cpu":
        ways = {way: [*words, "--seq-len", "64", "--dtype", "f32"] for way, words in ways.items()}
    seconds = {way: [seconds_to_first_step(machine, [*common, *words], "first-step", timeout) for _ in range(4)] for way, words in ways.items()}
    return {"first_step": {way: {"unprepared": times[0], "median": statistics.median(times[1:]), "all": times} for way, times in seconds.items()}}


MEASURE = {"train": measure_training, "kernels": measure_kernels, "first-step": measure_first_step}


class Results:
    def __init__(self, path: pathlib.Path, about: dict):
        self.path, self.about = path, about
        self.rows = json.loads(path.read_text())["rows"] if path.exists() else {}

    def has(self, name: str) -> bool:
        row = self.rows.get(name)
        return row is not None and "failed" not in row and row["about"] == self.about

    def add(self, name: str, row: dict) -> None:
        self.rows[name] = {"about": self.about, **row}
        self.path.parent.mkdir(parents=True, exist_ok=True)
        beside = self.path.with_suffix(".new")
        beside.write_text(json.dumps({"rows": self.rows}, indent=1) + "\n")
        beside.replace(self.path)


def measure(machine: Machine, row: Row, results: Results) -> bool:
    start = time.monotonic()
    command = "lockstep " + shlex.join(row.words(machine.device))
    try:
        outcome = MEASURE[row.kind](machine, row, 4 * row.seconds + 60)
    except Failed as failure:
        outcome = {"failed": str(failure)}
    state = query("clocks.sm,temperature.gpu,power.draw") if machine.device == "cuda" else ""
    results.add(row.name, {"command": command, "at": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()), "gpu_after": state, **outcome})
    summary = outcome.get("summary")
    told = (f"{summary['tokens_per_second']:10,.0f} tokens/s, MFU {summary['mfu'] or 0:.1%}, {summary['memory']['peak_bytes'] / 2**30:.1f} GiB" if summary
            else outcome.get("failed") or json.dumps(outcome.get("first_step", "ok")))
    print(f"{row.name:22} {time.monotonic() - start:6.1f} s  {told}", flush=True)
    return "failed" not in outcome


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--build", type=pathlib.Path, default=ROOT / "build")
    arguments.add_argument("--device", choices=["cuda", "cpu"], default="cuda", help="cpu tries the script itself")
    arguments.add_argument("--budget", type=float, default=float("inf"), help="seconds: begin no row that would not end within them")
    arguments.add_argument("--only", action="append", metavar="PATTERN")
    arguments.add_argument("--results", type=pathlib.Path, default=MEASURED)
    arguments.add_argument("--list", action="store_true")
    options = arguments.parse_args()
    start = time.monotonic()
    rows = [row for row in ROWS if not options.only or any(fnmatch.fnmatch(row.name, pattern) for pattern in options.only)]
    if not rows:
        print(f"no row is called {' or '.join(options.only)}; --list shows all", file=sys.stderr)
        return 2
    if options.list:
        print("\n".join(f"{row.name:22} {row.seconds:4.0f} s  lockstep {shlex.join(row.words(options.device))}" for row in rows))
        return 0
    machine = Machine(options.build.resolve(), options.device)
    os.environ["LOCKSTEP_CACHE"] = str(machine.folder / "cache")  # matmuls are searched once for all rows; nobody's cache is touched
    try:
        results = Results(options.results, machine.about())
        print(f"{results.about['lockstep']} on {results.about['device']}; results in {options.results}", flush=True)
        left, failed = [], []
        for row in rows:
            if results.has(row.name) and not options.only:
                continue
            if time.monotonic() - start + row.seconds > options.budget:
                left.append(row.name)
            elif not measure(machine, row, results):
                failed.append(row.name)
    finally:
        shutil.rmtree(machine.folder, ignore_errors=True)
    if left:
        print(f"left for the next call: {', '.join(left)}")
    return 1 if failed else 3 if left else 0


if __name__ == "__main__":
    sys.exit(main())
