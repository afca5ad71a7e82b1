#!/usr/bin/env python3
"""What trainer.fp8 costs in loss: the same model from the same seed on the same batches, in bf16, with FP8, and in bf16 again with its batch in
two halves, which changes the order of sums and nothing else.

    python3 bench/fp8_curve.py                        # three models, three seeds: some 7 minutes of an H200
    python3 bench/fp8_curve.py --minutes 3            # as far as that goes; the same command goes on where it stopped
    python3 bench/fp8_curve.py --json bench/measured/fp8_curve.json     # what docs/performance.md and README.md tell, by bench/tables.py
    python3 bench/fp8_curve.py --only lora --seeds 1
    python3 bench/fp8_curve.py --model models/qwen2.5-0.5b.yaml --batch 8 --steps 100     # one model of your own
    python3 bench/fp8_curve.py --model models/small.yaml --data stories --learning-rate 1e-4 --warm-up 200
    python3 bench/fp8_curve.py --model models/small.yaml --data tokens.bin -- --hidden-size 1024 data.token_type=u16

The three: `small` (12 layers of 768), `1b` (Llama-3.2-1B's blocks), both from random weights, and `lora` (rank 16 on all matrices of a 1B model that
has been trained for a while). Every finished run is kept under --folder, so that nothing is trained twice; a run that takes longer than its part
allows is given up and said. Losses are smoothed over 20 steps. The table has, for each seed, how far FP8 and the halves are from bf16: at most, in the
median step, and at the end. The halves tell how far rounding alone takes two runs apart: nothing smaller can be said about FP8.
Exits with 1 if FP8 is more than 1 % away at any step of any seed, with 2 if a run fails, with 3 if runs are left to do.

The text is the running Python's standard library and packages (bench/python_text.py), of which lockstep makes a tokenizer and tokens; machines
with other versions of them measure on other text. FP8 needs a GPU; with another setting under test everything else runs without one:

    python3 bench/fp8_curve.py --under-test model.dtype=f32 --model models/nano.yaml --steps 40 --batch 4 --seq 128 --warm-up 10 --text-bytes 2000000
"""
import argparse
import hashlib
import json
import math
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import typing

import python_text
from python_text import Failed

ROOT = pathlib.Path(__file__).resolve().parent.parent
BAR = 0.01
KINDS = ("bf16", "tested", "halves")


class Part(typing.NamedTuple):
    name: str
    says: str
    model: pathlib.Path
    steps: int
    batch: int
    seq: int
    warm_up: int
    limit_s: float  # of one run
    settings: tuple = ()
    base_steps: int = 0  # > 0: adapters, on a base that was trained so long


ONE_B = ROOT / "models" / "llama-3.2-1b.yaml"
PARTS = [
    Part("small", "12 layers of 768, from random weights", ROOT / "models" / "small.yaml", 200, 32, 1024, 100, 45),
    Part("1b", "Llama-3.2-1B's blocks, from random weights", ONE_B, 120, 8, 1024, 60, 60),
    Part("lora", "LoRA, rank 16, on a 1B model trained before", ONE_B, 120, 8, 1024, 20, 60,
         ("lora.enabled=true", "lora.rank=16", "lora.alpha=32", "lora.target_modules=all-linear", "trainer.learning_rate=2e-4"), base_steps=80),
]


class Difference(typing.NamedTuple):
    """How far a curve is from another, as shares of the other; largest and final with their sign, the median without."""
    largest: float
    step: int  # of the largest, from 1
    median: float
    final: float


class Run(typing.NamedTuple):
    losses: list
    rate: float  # tokens a second, median


class LeftToDo(Exception):
    """The time that was given is over."""


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lockstep", default=str(ROOT / "build" / "bin" / "lockstep"), help="the program")
    parser.add_argument("--folder", type=pathlib.Path, help="where finished runs are kept; build/fp8_curve, and none with --model")
    parser.add_argument("--json", type=pathlib.Path, help="write the table there too, once nothing is left to do (bench/measured/fp8_curve.json is what bench/tables.py reads)")
    parser.add_argument("--minutes", type=float, default=math.inf, help="no run begins after so long")
    parser.add_argument("--only", help=f"of the parts, comma-separated: {', '.join(part.name for part in PARTS)}")
    parser.add_argument("--seeds", type=int, help="3, or 1 with --model")
    parser.add_argument("--model", help="a run file of your own in place of the parts; its shape is what counts")
    parser.add_argument("--data", default="python", help="python (this interpreter's sources), stories (built in), or a file for `lockstep train --data`")
    parser.add_argument("--text-bytes", type=int, default=32_000_000, help="sources to take with --data python")
    parser.add_argument("--vocab-size", type=int, default=16384, help="tokens to learn with --data python")
    parser.add_argument("--under-test", default="trainer.fp8=true", metavar="SETTING", help="what the second run has and the first has not")
    parser.add_argument("--learning-rate", type=float, help="default: the model file's (6e-4 for small)")
    parser.add_argument("--smooth", type=int, default=20, help="steps a mean is taken over")
    for name, default, says in (("--steps", 200, "with --model"), ("--batch", 32, "samples a step, an even number"), ("--seq", 1024, "tokens of a sample"),
                                ("--warm-up", 100, "steps in which the learning rate rises; the file's schedule follows")):
        parser.add_argument(name, type=int, help=f"{says}; {default} with --model")
        parser.set_defaults(**{f"default_{name[2:].replace('-', '_')}": default})
    parser.add_argument("--device", choices=["cuda", "cpu"], help="what lockstep would choose by itself")
    parser.add_argument("more", nargs="*", help="settings for all runs that make a model, after --")
    asked = parser.parse_args()
    asked.parts = chosen_parts(parser, asked)
    asked.seeds = asked.seeds or (1 if asked.model else 3)
    for part in asked.parts:
        if part.batch < 2 or part.batch % 2:
            parser.error(f"--batch {part.batch} has no halves: use an even number")
        if not 1 <= asked.smooth <= part.steps:
            parser.error(f"--smooth {asked.smooth} has to be from 1 to the {part.steps} of --steps")
    if not shutil.which(asked.lockstep):
        parser.error(f"--lockstep {asked.lockstep} is no program: build it (make build), or name another")
    return asked


def chosen_parts(parser, asked):
    shape = {key: getattr(asked, key) for key in ("steps", "batch", "seq", "warm_up")}
    if asked.model:
        return [Part("model", asked.model, pathlib.Path(asked.model), limit_s=math.inf,
                     **{key: getattr(asked, f"default_{key}") if value is None else value for key, value in shape.items()})]
    parts = [part._replace(**{key: value for key, value in shape.items() if value is not None}) for part in PARTS]
    if not asked.only:
        return parts
    names = asked.only.split(",")
    if unknown := set(names) - {part.name for part in PARTS}:
        parser.error(f"--only {', '.join(sorted(unknown))}: the parts are {', '.join(part.name for part in PARTS)}")
    return [part for part in parts if part.name in names]


def say(words, end="\n"):
    print(words, end=end, file=sys.stderr, flush=True)


def data_settings(asked, folder):
    """What the runs are trained on, as settings; makes the tokens if they are to be Python's sources."""
    if asked.data == "stories":
        return ["data.kind=stories"]
    if asked.data != "python":
        return ["data.kind=auto", f"data.path={asked.data}"]
    done = folder / "tokens.json"
    if not done.exists():
        say("text: ", end="")
        start = time.monotonic()
        texts, size = python_text.choose(python_text.source_folders(), asked.text_bytes)
        if not texts:
            raise Failed(f"no Python source fits into --text-bytes {asked.text_bytes}; looked into {', '.join(map(str, python_text.source_folders()))}")
        for leftover in ("tokenizer", "tokens.bin"):  # of an attempt that was cut off
            path = folder / leftover
            shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
        path, vocabulary = python_text.make_tokens(asked.lockstep, texts, folder, asked.vocab_size)
        say(f"{len(texts):,} files, {size / 1e6:.1f} MB, {path.stat().st_size // 4:,} tokens of {vocabulary:,}; {time.monotonic() - start:.1f} s")
        done.write_text(json.dumps({"path": str(path), "vocabulary": vocabulary}))
    made = json.loads(done.read_text())
    return ["data.kind=bin", f"data.path={made['path']}", "data.token_type=u32", f"model.vocab_size={made['vocabulary']}"]


class Study:
    """Runs what is not there yet, in an order that completes one seed of everything before the next."""

    def __init__(self, asked, folder):
        self.asked, self.folder = asked, folder
        self.deadline = time.monotonic() + 60 * asked.minutes
        (folder / "runs").mkdir(parents=True, exist_ok=True)
        self.data = data_settings(asked, folder)

    def command(self, part, seed, settings):
        rate = [f"trainer.learning_rate={self.asked.learning_rate}"] if self.asked.learning_rate is not None else []
        shape = [] if part.base_steps else ["-f", part.model, *self.asked.more]
        return [*shape, *(["--device", self.asked.device] if self.asked.device else []), "--ranks", "1", f"data.seq_len={part.seq}", f"trainer.batch_size={part.batch}", f"trainer.global_batch_size={part.batch}",
                "model.dtype=bf16", f"trainer.max_steps={part.steps}", f"trainer.warmup_steps={part.warm_up}", f"trainer.seed={1233 + seed}",
                "trainer.log_interval=1", "trainer.eval_interval=0", "trainer.save_interval=0", "checkpoint.save_at_end=false",
                "checkpoint.export_at_end=false", "monitor.sample_tokens=0", *self.data, *part.settings, *rate, *settings]

    def run_program(self, name, command, limit_s):
        if time.monotonic() > self.deadline:
            raise LeftToDo
        say(f"{name}: ", end="")
        try:
            done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=None if math.isinf(limit_s) else limit_s)
        except subprocess.TimeoutExpired:
            raise Failed(f"{name} took longer than its {limit_s:g} s") from None
        if done.returncode != 0:
            raise Failed(f"{' '.join(map(str, command))} ended with {done.returncode}:\n{done.stderr}")

    def train(self, part, seed, kind):
        """The losses of a run and its tokens a second, from the folder if it has been trained before."""
        settings = {"bf16": [], "tested": [self.asked.under_test], "halves": [f"trainer.batch_size={part.batch // 2}"]}[kind]
        command = self.command(part, seed, settings)
        if part.base_steps:
            command = ["--model", self.base_folder(part), *command]
        digest = hashlib.sha256("\n".join(map(str, command)).encode()).hexdigest()[:12]
        kept = self.folder / f"{part.name}-{seed}-{kind}-{digest}.json"
        if not kept.exists():
            name = f"{part.name}, seed {seed}, {self.asked.under_test if kind == 'tested' else kind}"
            output = self.folder / "runs" / kept.stem
            shutil.rmtree(output, ignore_errors=True)
            if part.base_steps:
                self.make_base(part)
            start = time.monotonic()
            self.run_program(name, [self.asked.lockstep, "train", "--output", output, "--name", "run", *command], part.limit_s)
            result = read_curve(output / "run" / "metrics.jsonl", part.steps, name)
            say(f"{part.steps} steps, loss {result.losses[0]:.3f} to {result.losses[-1]:.3f}, {time.monotonic() - start:.1f} s")
            kept.with_suffix(".part").write_text(json.dumps(result._asdict()))
            kept.with_suffix(".part").rename(kept)
            shutil.rmtree(output, ignore_errors=True)
        return Run(**json.loads(kept.read_text()))

    def base_folder(self, part):
        """Of the model that adapters are trained on: the same for all seeds."""
        return self.folder / f"base-{part.model.stem}-{part.base_steps}"

    def make_base(self, part):
        folder = self.base_folder(part)
        unfinished = self.folder / f"{folder.name}.part"
        if not folder.exists():
            start, output = time.monotonic(), self.folder / "runs" / "base"
            for leftover in (output, unfinished):
                shutil.rmtree(leftover, ignore_errors=True)
            plain = part._replace(settings=(), base_steps=0, steps=part.base_steps)
            more = ["trainer.optimizer_states=bf16", "checkpoint.save_at_end=true"]
            train = [self.asked.lockstep, "train", "--output", output, "--name", "run", *self.command(plain, 0, more)]
            self.run_program(f"{part.name}, the base", train, 2 * part.limit_s)
            self.run_program("exporting it", [self.asked.lockstep, "export", "--run", output / "run", "--output", unfinished], 2 * part.limit_s)
            unfinished.rename(folder)
            shutil.rmtree(output, ignore_errors=True)
            say(f"{part.base_steps} steps, {time.monotonic() - start:.1f} s")


def read_curve(path, steps, name):
    lines = [line for line in map(json.loads, path.read_text().splitlines()) if "loss" in line and "step" in line]
    if len(lines) != steps:
        raise Failed(f"{steps} steps were asked for, but {name} wrote {len(lines)}")
    for line in lines:
        if line["loss"] is None or not math.isfinite(line["loss"]):
            raise Failed(f"the loss of {name} at step {line['step']} is {line['loss']}")
    rates = [line["tokens_per_second"] for line in lines[steps // 4:] if "tokens_per_second" in line]
    return Run([line["loss"] for line in lines], statistics.median(rates) if rates else 0)


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


def table(rows, under_test):
    """Lines of Markdown. rows: (part's name, what it says, seed, bf16's last loss, difference of the tested, of the halves)."""
    lines = [f"| model | seed | loss in bf16 | {under_test}: largest, at step | median | final | bf16 in halves: largest | median | final |", "|---|---|---|---|---|---|---|---|---|"]
    for name, _, seed, loss, tested, halves in rows:
        lines.append(f"| {name} | {seed} | {loss:.3f} | {tested.largest:+.2%}, {tested.step} | {tested.median:.2%} | {tested.final:+.2%} "
                     f"| {halves.largest:+.2%} | {halves.median:.2%} | {halves.final:+.2%} |")
    return lines


def costs(rows):
    """A sentence for each part: what its loss is at the end beside bf16's, in the mean and at either end of the seeds."""
    sentences = []
    for name, says in dict.fromkeys(row[:2] for row in rows):
        mine = [row for row in rows if row[0] == name]
        finals, rounding = [row[4].final for row in mine], [abs(row[5].final) for row in mine]
        sentences.append(f"{name} ({says}): at the end {statistics.fmean(finals):+.2%} of the loss in the mean of {len(mine)} seed{'s' * (len(mine) > 1)} "
                         f"({min(finals):+.2%} to {max(finals):+.2%}); rounding alone up to {max(rounding):.2%}")
    return sentences


def study(asked, folder):
    rows, rates, left, failures = [], {}, False, []
    try:
        runs = Study(asked, folder)
        for seed in range(1, asked.seeds + 1):
            for part in asked.parts:
                try:
                    found = {kind: runs.train(part, seed, kind) for kind in KINDS}
                except Failed as why:
                    say(why)
                    failures.append(f"{part.name}, seed {seed}")
                    continue
                plain, tested, halves = (smoothed(found[kind].losses, asked.smooth) for kind in KINDS)
                rows.append((part.name, part.says, seed, plain[-1], difference(plain, tested), difference(plain, halves)))
                rates.setdefault(part.name, []).append((found["bf16"].rate, found["tested"].rate))
                if asked.model and asked.seeds == 1:
                    print_curves(plain, tested, halves, asked.smooth)
    except LeftToDo:
        left = True
    return rows, rates, left, failures


def report(asked, rows, rates):
    if asked.model and asked.seeds == 1:
        for name, apart in ((asked.under_test, rows[0][4]), ("rounding alone", rows[0][5])):
            print(f"{name}: largest difference {apart.largest:+.3%} at step {apart.step}, median {apart.median:.3%}, final {apart.final:+.3%}")
    else:
        print("\n".join([*table(rows, asked.under_test), *costs(rows)]))
    for name, pairs in rates.items():
        plain, tested = (statistics.median(column) for column in zip(*pairs))
        if plain and tested:
            print(f"{name}: tokens/s bf16 {plain:,.0f}, {asked.under_test} {tested:,.0f}")
    within = all(abs(row[4].largest) <= BAR for row in rows)
    print(f"{asked.under_test} is {'within' if within else 'beyond'} {BAR:.0%} of bf16")
    return within


def keep(asked, rows):
    """The table for bench/tables.py, with what it was measured by and on."""
    version = subprocess.run([asked.lockstep, "--version"], capture_output=True, text=True, check=True).stdout.strip()
    about = {"lockstep": version, "device": device_name(asked), "at": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
             "command": " ".join(["python3", "bench/fp8_curve.py", *said_of_the_runs(sys.argv[1:])])}
    made = [{"part": name, "says": says, "seed": seed, "loss": loss, "tested": tested._asdict(), "halves": halves._asdict()} for name, says, seed, loss, tested, halves in rows]
    asked.json.write_text(json.dumps({"about": about, "under_test": asked.under_test, "rows": made}, indent=1) + "\n")


def said_of_the_runs(words):
    """Arguments without those that say where results go and how long one call may take."""
    kept = iter(words)
    return [word for word in kept if not (word in ("--json", "--minutes", "--folder", "--lockstep") and next(kept, True))]


def read_kept(path):
    """rows as table() and costs() take them, what was under test, and where."""
    data = json.loads(path.read_text())
    rows = [(row["part"], row["says"], row["seed"], row["loss"], Difference(**row["tested"]), Difference(**row["halves"])) for row in data["rows"]]
    return rows, data["under_test"], data["about"]


def device_name(asked):
    if asked.device == "cpu" or not shutil.which("nvidia-smi"):
        return "cpu"
    return subprocess.run(["nvidia-smi", "-i", "0", "--query-gpu=name", "--format=csv,noheader"], capture_output=True, text=True, check=True).stdout.strip()


def main():
    asked = arguments()
    kept = asked.folder or (None if asked.model else ROOT / "build" / "fp8_curve")
    if kept:
        rows, rates, left, failures = study(asked, kept)
    else:
        with tempfile.TemporaryDirectory(prefix="lockstep-curve-") as folder:
            rows, rates, left, failures = study(asked, pathlib.Path(folder))
    within = report(asked, rows, rates) if rows else True
    if failures:
        say(f"failed: {'; '.join(failures)}")
        return 2
    if left:
        say("there are runs left to do: the same command goes on with them")
        return 3
    if asked.json:
        keep(asked, rows)
    return 0 if within else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Failed as why:
        say(f"\n{why}")
        sys.exit(2)
