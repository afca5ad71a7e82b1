#!/usr/bin/env python3
"""What needs a GPU, most telling first: kernels against their references, NCCL ranks against one rank, every dtype, fine-tuning end to end.

    python3 tests/gpu/run.py                      everything; `make test-gpu` builds first
    python3 tests/gpu/run.py --budget 300         what fits into five minutes; called again, it goes on where it stopped
    python3 tests/gpu/run.py --only 'resume*'     cases by name, whether or not they were run before
    python3 tests/gpu/run.py --make-golden tests/golden      this GPU's numbers, which the case `golden` compares with
    python3 tests/gpu/run.py --list

Needs build/bin, build/lib and a python3 with torch; no compiler, no pytest, no network. Results are appended to a JSON file after each
case and kept for as long as the programs stay the same; a log keeps every command with what it printed. Exit code: 0 when all of it
has passed, 1 where something failed, 3 where nothing failed but the budget left cases for the next call.
"""
import argparse
import fnmatch
import json
import pathlib
import sys
import time

import checks
import equality
import finetuning
import lost_ranks
import machines
import memory
import monitoring
import programs
import shards
import unchanged
import watch
from suite import ROOT, Case, Problem, Skip, Suite, query

# By what a few minutes tell: the kernels, one equality of each kind, then everything else.
FIRST = ["model_tests", "f32", "nccl-two-ranks", "lora-f32", "lora-packed", "fp8", "resume-bf16-deterministic", "resume-lora-deterministic", "lora-4bit", "generate",
         "nccl-lost-rank", "bf16", "train_tests", "cpu-f32", "comm_tests", "parallel_tests"]
LAST = ["nccl-four-ranks", "parallel_tests-four-ranks"]


def all_cases() -> list[Case]:
    cases = {case.name: case for module in (programs, checks, equality, shards, memory, finetuning, lost_ranks, machines, monitoring, watch, unchanged) for case in module.CASES}
    middle = [name for name in cases if name not in FIRST and name not in LAST]
    return [cases[name] for name in FIRST + middle + LAST]


class Results:
    """A JSON file of one build's cases; another build's are put aside."""

    def __init__(self, path: pathlib.Path, about: dict):
        self.path, self.data = path, {"about": about, "cases": {}}
        if path.exists():
            before = json.loads(path.read_text())
            if before["about"]["programs"] == about["programs"] and before["about"]["device"] == about["device"]:
                self.data["cases"] = before["cases"]
            else:
                print(f"{path} is of another build or device: everything is run anew", flush=True)

    def done(self, name: str) -> bool:
        return self.data["cases"].get(name, {}).get("state") in ("passed", "skipped")

    def add(self, name: str, **about) -> None:
        self.data["cases"][name] = about
        self.path.parent.mkdir(parents=True, exist_ok=True)
        beside = self.path.with_suffix(".new")
        beside.write_text(json.dumps(self.data, indent=1) + "\n")
        beside.replace(self.path)


def run_case(suite: Suite, case: Case, results: Results) -> str:
    start = time.monotonic()
    slack = 4 if suite.device == "cuda" else 40
    suite.deadline, suite.skipped = start + slack * case.seconds + 60, []
    print(f"\n== {case.name}", file=suite.log, flush=True)
    state, note = "passed", ""
    try:
        note = case.work(suite) or ""
    except Skip as reason:
        state, note = "skipped", str(reason)
    except Problem as problem:
        state, note = "failed", str(problem)
    except Exception as error:  # a case that breaks is a case that failed
        state, note = "failed", f"{type(error).__name__}: {error}"
    seconds = time.monotonic() - start
    results.add(case.name, state=state, seconds=round(seconds, 1), note=note, skipped=suite.skipped, at=time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime()))
    print(f"-- {case.name}: {state}: {note}", file=suite.log, flush=True)
    first, *rest = note.splitlines() or [""]
    print(f"{ {'passed': 'ok  ', 'failed': 'FAIL', 'skipped': 'skip'}[state]} {case.name:36} {seconds:6.1f} s  {first}", flush=True)
    for line in rest[-40:] if state == "failed" else []:
        print(f"       {line}", flush=True)
    return state


def about_this(suite: Suite) -> dict:
    version = suite.command([suite.lockstep, "--version"]).stdout.strip()
    return {"version": version, "programs": suite.build_id(), "device": query("name") if suite.device == "cuda" else "cpu"}


def conclude(results: Results, chosen: list[Case]) -> int:
    cases = {case.name: results.data["cases"].get(case.name) for case in chosen}
    by_state = lambda state: [name for name, about in cases.items() if about and about["state"] == state]
    failed, skipped, left = by_state("failed"), by_state("skipped"), [name for name, about in cases.items() if about is None]
    inside = sorted({f"{name}: {test}" for name, about in cases.items() if about for test in about["skipped"]})
    for name in skipped:
        print(f"skipped: {name}: {cases[name]['note']}")
    for test in inside:
        print(f"skipped in {test}: {programs.reason_to_skip(test.split(': ')[1]) or 'not for this device'}")
    if left:
        print(f"not run yet: {', '.join(left)}")
    print(f"{len(by_state('passed'))} passed, {len(failed)} failed, {len(skipped)} skipped and {len(inside)} tests within, {len(left)} left"
          + (f"; failed: {', '.join(failed)}" if failed else ""))
    return 1 if failed else 3 if left else 0


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--build", default="build")
    arguments.add_argument("--only", action="append", metavar="PATTERN", help="cases whose names match; may be given several times")
    arguments.add_argument("--budget", type=float, default=float("inf"), metavar="SECONDS", help="begin no case that would not end within this time")
    arguments.add_argument("--results", type=pathlib.Path, help="BUILD/gpu-suite.json if left out")
    arguments.add_argument("--log", type=pathlib.Path, help="beside the results if left out")
    arguments.add_argument("--device", choices=["cuda", "cpu"], default="cuda", help="cpu tries the suite itself; it says nothing of a GPU")
    arguments.add_argument("--make-golden", type=pathlib.Path, metavar="FOLDER", help="write this GPU's golden numbers there, and nothing else")
    arguments.add_argument("--golden", type=pathlib.Path, metavar="FOLDER", help="compare with golden numbers there; tests/golden if left out")
    arguments.add_argument("--list", action="store_true", help="cases in the order they are run, with about how many seconds each takes")
    options = arguments.parse_args()
    start = time.monotonic()
    cases = all_cases()
    if options.only:
        cases = [case for case in cases if any(fnmatch.fnmatch(case.name, pattern) for pattern in options.only)]
        if not cases:
            print(f"no case is called {' or '.join(options.only)}; --list shows all", file=sys.stderr)
            return 2
    if options.list:
        print("\n".join(f"{case.name:36} {case.seconds:4.0f} s" for case in cases))
        return 0
    build = (ROOT / options.build).resolve()
    path = options.results or build / "gpu-suite.json"
    suite = Suite(build, build / "gpu-suite", options.device, options.log or path.with_suffix(".log"))
    suite.golden = options.golden or suite.golden
    if options.make_golden:
        unchanged.make(suite, options.make_golden)
        return 0
    about = about_this(suite)
    results = Results(path, about)
    print(f"{about['version']} on {about['device']}; results in {path}, log in {suite.log_path}", flush=True)
    for case in cases:
        if results.done(case.name) and not options.only:
            continue
        if time.monotonic() - start + case.seconds > options.budget:
            continue
        run_case(suite, case, results)
    return conclude(results, cases)


if __name__ == "__main__":
    sys.exit(main())
