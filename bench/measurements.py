"""Each measurement of the bars: how quick the command is, how fast training is against PyTorch DDP, what a second rank and a checkpoint cost."""
import json
import pathlib
import shutil
import signal
import statistics
import subprocess
import sys
import time

import yaml

from measure import LOCKSTEP, ROOT, Row, clean_environment, read_lines, say, spread

NANO = ROOT / "models" / "nano.yaml"
WARM_UP_STEPS = 3  # allocations, first touches of memory, autotuning of matrix products


def time_command(command: list[str], code: int, repeats: int) -> list[float]:
    """Milliseconds of a whole process, the first two runs left out: they bring the program into memory."""
    times = []
    for _ in range(repeats + 2):
        start = time.perf_counter()
        done = subprocess.run(command, capture_output=True, env=clean_environment())
        times.append((time.perf_counter() - start) * 1e3)
        assert done.returncode == code, f"{command} ended with {done.returncode}: {done.stderr.decode()}"
    return times[2:]


def help_and_mistake(scratch: pathlib.Path, quick: bool) -> list[Row]:
    wrong = scratch / "wrong.yaml"
    wrong.write_text(NANO.read_text() + "  learning_rat: 1\n")
    rows = []
    for name, arguments, code, bar in (("lockstep --help", ["--help"], 0, 50), ("a mistake in the config", ["train", "-f", str(wrong)], 2, 200)):
        times = time_command([str(LOCKSTEP), *arguments], code, 5 if quick else 25)
        command = "lockstep " + " ".join(pathlib.Path(a).name if a.endswith(".yaml") else a for a in arguments)
        rows.append(Row(name, command, statistics.median(times), "ms", bar, True, f"{min(times):.1f} to {max(times):.1f} ms", {"ms": spread(times)}))
    return rows


class Training:
    """A started `lockstep train`, watched through its run folder and ended at once when no longer needed."""

    def __init__(self, folder: pathlib.Path, config: pathlib.Path, *arguments: str):
        shutil.rmtree(folder, ignore_errors=True)
        folder.parent.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.log = (folder.parent / f"{folder.name}.log").open("w+")
        command = [str(LOCKSTEP), "train", "-f", str(config), "--device", "cpu", "--output", str(folder.parent), "--name", folder.name, *arguments]
        self.start = time.perf_counter()
        self.process = subprocess.Popen(command, stdout=self.log, stderr=subprocess.STDOUT, env=clean_environment())

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for _ in range(2):
            if self.process.poll() is None:
                self.process.send_signal(signal.SIGINT)
                time.sleep(0.2)
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.log.close()

    def wait_for(self, what: str, condition, seconds: float = 600):
        """Seconds since the start when `condition` first holds, looked at every 2 ms; and its value."""
        while True:
            value = condition()
            now = time.perf_counter() - self.start
            if value:
                return now, value
            if self.process.poll() is not None or now > seconds:
                self.log.seek(0)
                raise RuntimeError(f"{what} was not seen within {now:.0f} s:\n{self.log.read()}")
            time.sleep(0.002)

    def lines(self, key: str) -> list[dict]:
        return [line for line in read_lines(self.folder / "metrics.jsonl") if key in line]

    def finish(self) -> dict:
        if self.process.wait(1800) != 0:
            self.log.seek(0)
            raise RuntimeError(self.log.read())
        return json.loads((self.folder / "summary.json").read_text())


def first_step(scratch: pathlib.Path, quick: bool) -> list[Row]:
    times = []
    for _ in range(2 if quick else 6):
        with Training(scratch / "first", NANO, "--ranks", "2") as run:
            seconds, _ = run.wait_for("the first step", lambda: run.lines("loss"))
        times.append(seconds)
        say(f"first finished step after {seconds:.2f} s")
    times = times[1:]  # the first brings LibTorch into memory
    return [Row("command to first finished step, nano on 2 CPU ranks", "lockstep train -f models/nano.yaml --device cpu --ranks 2", statistics.median(times), "s", 3, True,
                f"{min(times):.2f} to {max(times):.2f} s", {"seconds": spread(times)})]


def lockstep_rate(scratch: pathlib.Path, ranks: int, steps: int, *settings: str) -> dict:
    """Steps alone: nothing is evaluated, sampled or saved. Data is random, as it is for the other side."""
    with Training(scratch / f"ranks-{ranks}", NANO, "--ranks", str(ranks), "--threads", "1", "--max-steps", str(steps), "data.kind=random", "data.validation_fraction=0",
                  "trainer.log_interval=1", "trainer.save_interval=0", "checkpoint.save_at_end=false", "monitor.sample_tokens=0", "trainer.warmup_steps=1", *settings) as run:
        summary = run.finish()
    tokens = summary["batch"]["global_batch_size"] * summary["batch"]["seq_len"]
    return {"parameters": summary["parameters"], "tokens_per_second": tokens / statistics.median(summary["raw_step_seconds"][WARM_UP_STEPS:])}


def ddp_rate(ranks: int, steps: int) -> dict:
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks), str(ROOT / "bench" / "ddp_baseline.py"), "--config", str(NANO),
               "--steps", str(steps)]
    done = subprocess.run(command, capture_output=True, text=True, env=clean_environment(OMP_NUM_THREADS="1"))
    if done.returncode != 0:
        raise RuntimeError(done.stderr)
    result = json.loads(done.stdout.strip().splitlines()[-1])
    return {"parameters": result["parameters"], "tokens_per_second": result["tokens"] / statistics.median(result["step_seconds"][WARM_UP_STEPS:])}


def training_rates(scratch: pathlib.Path, quick: bool) -> list[Row]:
    """Rounds of all four in turn, so that a slow minute hits each alike; the ratio is the median of the rounds' ratios."""
    rounds, steps = (2, 8) if quick else (5, 18)
    rates = {"two": [], "ddp": [], "one": [], "shards": []}
    for number in range(rounds):
        results = {"two": lockstep_rate(scratch, 2, steps), "ddp": ddp_rate(2, steps), "one": lockstep_rate(scratch, 1, steps),
                   "shards": lockstep_rate(scratch, 2, steps, "parallel.shard=full")}
        if len({result["parameters"] for result in results.values()}) != 1:
            raise RuntimeError(f"not the same model on both sides: {results}")
        for name, result in results.items():
            rates[name].append(result["tokens_per_second"])
        say(f"round {number + 1} of {rounds}: 2 ranks {rates['two'][-1]:.0f}, PyTorch DDP {rates['ddp'][-1]:.0f}, 1 rank {rates['one'][-1]:.0f}, "
            f"2 ranks over shards {rates['shards'][-1]:.0f} tokens/s")
    raw = {name: spread(values) for name, values in rates.items()}
    two, ddp, one, shards = (statistics.median(rates[name]) for name in ("two", "ddp", "one", "shards"))
    against_ddp = [a / b for a, b in zip(rates["two"], rates["ddp"])]
    scaling = [a / b for a, b in zip(rates["two"], rates["one"])]
    over_shards = [a / b for a, b in zip(rates["shards"], rates["two"])]
    command = "lockstep train -f models/nano.yaml --device cpu --threads 1 --ranks "
    return [Row("2 CPU ranks against PyTorch DDP (Gloo)", command + "2; torchrun --nproc-per-node 2 bench/ddp_baseline.py", statistics.median(against_ddp), "x", 1.0, False,
                f"{two:.0f} against {ddp:.0f} tokens/s", {"tokens_per_second": raw, "ratios": spread(against_ddp)}),
            Row("2 ranks x 1 thread against 1 rank x 1 thread", command + "2, and 1", statistics.median(scaling), "x", 1.88, False,
                f"{two:.0f} against {one:.0f} tokens/s", {"tokens_per_second": raw, "ratios": spread(scaling)}),
            Row("2 CPU ranks, everything in shards against replicas", command + "2 parallel.shard=full, and none", statistics.median(over_shards), "x", 0.85, False,
                f"{shards:.0f} against {two:.0f} tokens/s", {"tokens_per_second": raw, "ratios": spread(over_shards)})]


# 275M parameters in f32: 1.1 GB of weights, 3.3 GB with AdamW's two moments.
GIGABYTE_MODEL = {
    "model": {"name": "gigabyte", "hidden_size": 1536, "num_layers": 8, "num_heads": 12, "intermediate_size": 4096, "vocab_size": 32000, "max_seq_len": 16},
    "data": {"kind": "random", "random_tokens": 16384, "validation_fraction": 0},
    "trainer": {"batch_size": 1, "learning_rate": 1e-4, "lr_schedule": "constant", "max_steps": 1000000, "log_interval": 1, "max_checkpoints": 1},
    "monitor": {"sample_tokens": 0},
}


def dd_seconds(scratch: pathlib.Path, sources: list[pathlib.Path]) -> float:
    """The checkpoint's own bytes, read into memory before: zeros would be cheaper on disks that notice them."""
    target = scratch / "dd.bin"
    subprocess.run(["cat", *map(str, sources)], check=True, stdout=subprocess.DEVNULL)
    start = time.perf_counter()
    for source in sources:
        subprocess.run(["dd", f"if={source}", f"of={target}", "bs=16M", "conv=fsync"], check=True, capture_output=True)
    seconds = time.perf_counter() - start
    target.unlink()
    return seconds


class SaveWatch:
    """When each step's line and each whole checkpoint was first seen, in seconds since the start of a run."""

    def __init__(self, run: Training):
        self.run, self.steps, self.whole = run, {}, {}

    def saved(self, step: int) -> bool:
        """Looks; true once the checkpoint of `step` is whole and the step after it is done."""
        now = time.perf_counter() - self.run.start
        for line in self.run.lines("loss"):
            self.steps.setdefault(line["step"], (now, line["step_seconds"]))
        if (self.run.folder / "checkpoints" / f"step-{step:06}").exists():
            self.whole.setdefault(step, now)
        return step in self.whole and step + 1 in self.steps

    def times(self, step: int) -> dict:
        begun, (next_end, next_seconds) = self.steps[step][0], self.steps[step + 1]
        return {"seconds": self.whole[step] - begun, "blocked": max(0.0, next_end - next_seconds - begun)}


def save_and_dd(scratch: pathlib.Path, every: int, wanted: int) -> list[dict]:
    """One run: how long steps stood still for each save, how long until the checkpoint was whole and synced; then dd of the same bytes."""
    config = scratch / "gigabyte.yaml"
    config.write_text(yaml.safe_dump(GIGABYTE_MODEL))
    saves = []
    with Training(scratch / "gigabyte", config, "--ranks", "1", f"trainer.save_interval={every}") as run:
        watch = SaveWatch(run)
        for step in range(every, every * (wanted + 1), every):
            run.wait_for(f"the checkpoint of step {step}", lambda: watch.saved(step))
            saves.append(watch.times(step))
            if max(watch.steps) >= step + every:
                break  # the next save had to wait for this one: its times would not be its own
    folder = max((run.folder / "checkpoints").glob("step-??????"))
    files = sorted(folder.glob("*.safetensors"))
    for save in saves:
        save |= {"bytes": sum(path.stat().st_size for path in files), "dd": dd_seconds(scratch, files)}
    shutil.rmtree(run.folder)
    return saves


def checkpoint(scratch: pathlib.Path, quick: bool) -> list[Row]:
    rounds, every, wanted = (1, 4, 1) if quick else (3, 6, 2)
    saves = []
    for number in range(rounds):
        saves += save_and_dd(scratch, every, wanted)
        last = saves[-1]
        say(f"round {number + 1} of {rounds}: {last['bytes'] / 1e9:.2f} GB in {last['seconds']:.2f} s, dd {last['dd']:.2f} s, steps stood still for {last['blocked']:.2f} s")
    size = saves[0]["bytes"]
    ours, dd, blocked = (statistics.median(save[key] for save in saves) for key in ("seconds", "dd", "blocked"))
    ratio = statistics.median(save["dd"] / save["seconds"] for save in saves)
    return [Row("checkpoint of a 1.1 GB model against dd with fsync", "lockstep train with trainer.save_interval=6; dd if=CHECKPOINT bs=16M conv=fsync", ratio, "x", 0.5,
                False, f"{size / ours / 1e9:.2f} against {size / dd / 1e9:.2f} GB/s for {size / 1e9:.1f} GB; steps stood still for {blocked:.2f} s", {"saves": saves})]


ALL = {"command": help_and_mistake, "first-step": first_step, "training": training_rates, "checkpoint": checkpoint}
