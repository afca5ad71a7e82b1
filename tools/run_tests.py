#!/usr/bin/env python3
"""Runs checks, test programs and pytest files on all cores, and ends with the skips by name and one line: N passed, M failed, K skipped.

Nothing is listed by hand: programs come from what CMake built, pytest files from the folders given. A part that collects nothing, dies
or outlives its deadline has failed. With CI=true a skip counts as a failure unless it is for want of hardware ("needs a GPU", "this CPU").
"""
import argparse
import concurrent.futures
import dataclasses
import os
import pathlib
import re
import signal
import subprocess
import sys
import threading
import time
import xml.etree.ElementTree as xml

ROOT = pathlib.Path(__file__).resolve().parent.parent
PYTHON = ROOT / ".deps-test/bin/python"
DEADLINE_S = 900
# Parts share the cores: threads that spin while they wait for one that has lost its core would take it from others that have work.
SHARED = {"OMP_WAIT_POLICY": "passive"}
# Folders whose tests compare times or kill ranks by the clock: one of them at a time.
ONE_AT_A_TIME = ("faults", "machines")
HARDWARE = re.compile(r"needs a GPU|needs two GPUs|this CPU")


@dataclasses.dataclass
class Part:
    name: str
    command: list[str]
    report: pathlib.Path | None = None  # JUnit's form; None: a check that is good where it exits with 0

    @property
    def log(self) -> pathlib.Path:
        return LOGS / f"{self.name.replace('/', '-')}.log"

    @property
    def alone(self) -> bool:
        return any(f"tests/{folder}/" in self.name for folder in ONE_AT_A_TIME)


@dataclasses.dataclass
class Outcome:
    part: Part
    passed: int = 0
    failed: int = 0
    skipped: list[tuple[str, str]] = dataclasses.field(default_factory=list)  # name, reason
    seconds: float = 0
    trouble: str = ""


def read_junit(path: pathlib.Path, outcome: Outcome) -> None:
    for case in xml.parse(path).getroot().iter("testcase"):
        skip = case.find("skipped")
        if case.find("failure") is not None or case.find("error") is not None:
            outcome.failed += 1
        elif skip is not None or case.get("result") == "skipped":
            reason = " ".join((skip.get("message") or skip.text or "").split()) if skip is not None else ""
            outcome.skipped.append((f"{case.get('classname')}.{case.get('name')}", reason))
        else:
            outcome.passed += 1


def run(part: Part) -> Outcome:
    outcome = Outcome(part)
    if part.report:
        part.report.unlink(missing_ok=True)
    start = time.monotonic()
    with part.log.open("w") as out:
        process = subprocess.Popen(part.command, cwd=ROOT, stdout=out, stderr=subprocess.STDOUT, start_new_session=True,
                                   env={**SHARED, **os.environ, "LOCKSTEP_BUILD": str(LOGS.parent)})
        try:
            code = process.wait(timeout=DEADLINE_S)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            code = process.wait()
            outcome.trouble = f"it was ended after {DEADLINE_S} s"
    outcome.seconds = time.monotonic() - start
    if part.report is None:
        outcome.passed, outcome.failed = (1, 0) if code == 0 else (0, 1)
        return outcome
    try:
        read_junit(part.report, outcome)
    except (FileNotFoundError, xml.ParseError):
        outcome.trouble = outcome.trouble or f"it ended with {code} before it could report"
    if not outcome.trouble and outcome.passed + outcome.failed + len(outcome.skipped) == 0:
        outcome.trouble = "it has no tests, or none was collected"
    if not outcome.trouble and code != 0 and outcome.failed == 0:
        outcome.trouble = f"every test passed, but it ended with {code}"
    outcome.failed += bool(outcome.trouble)
    return outcome


def tell(outcome: Outcome) -> None:
    print(f"{outcome.part.name:44} {outcome.passed:5} passed {outcome.failed:4} failed {len(outcome.skipped):4} skipped {outcome.seconds:7.1f} s", flush=True)
    if not outcome.failed:
        return
    lines = outcome.part.log.read_text(errors="replace").splitlines()
    keep = [i for i, line in enumerate(lines) if re.search(r"FAILED|Failure|Error|assert", line)]
    shown = lines[-120:] if not keep or len(lines) < 200 else lines[max(0, keep[0] - 10) : keep[0] + 60] + ["..."] + lines[-60:]
    print("\n".join(f"    {line}" for line in shown))
    print(f"    {outcome.trouble + ' ' if outcome.trouble else ''}(whole log: {outcome.part.log})", flush=True)


def seconds_last_time() -> dict[str, float]:
    try:
        return {name: float(seconds) for name, seconds in (line.rsplit(" ", 1) for line in TIMES.read_text().splitlines())}
    except FileNotFoundError:
        return {}


def run_all(parts: list[Part], jobs: int) -> list[Outcome]:
    """The longest first, as far as the last run tells, so that no long one is left over at the end; what must be alone has a lane of its own."""
    known = seconds_last_time()
    parts = sorted(parts, key=lambda part: -known.get(part.name, 60))
    telling, lane = threading.Lock(), threading.Lock()

    def one(part: Part) -> Outcome:
        outcome = run(part)
        with telling:
            tell(outcome)
        return outcome

    def alone(several: list[Part]) -> list[Outcome]:
        with lane:
            return [one(part) for part in several]

    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        quiet = [part for part in parts if part.alone]
        waiting = [pool.submit(alone, quiet)] if quiet else []
        others = [pool.submit(one, part) for part in parts if not part.alone]
        outcomes = [outcome for future in waiting for outcome in future.result()] + [future.result() for future in others]
    TIMES.write_text("".join(f"{name} {seconds:.1f}\n" for name, seconds in {**known, **{o.part.name: o.seconds for o in outcomes}}.items()))
    return outcomes


def parts_of(options: argparse.Namespace) -> list[Part]:
    parts = []
    if options.checks:
        parts += [Part("format", ["tools/format.sh", "--check"]), Part("include directions", [sys.executable, "tools/check_includes.py"]),
                  Part("sizes", [sys.executable, "tools/check_sizes.py"]),
                  Part("generated docs", [sys.executable, "tools/make_docs.py", "--check", "--lockstep", str(BUILD / "bin/lockstep")])]
    for program in (BUILD / "test_programs.txt").read_text().split():
        if options.programs is not None and program not in options.programs:
            continue
        report = LOGS / f"{program}.xml"
        parts.append(Part(program, [str(BUILD / "bin" / program), f"--gtest_output=xml:{report}", "--gtest_brief=1"], report))
    for folder in options.pytest:
        files = [ROOT / folder] if folder.endswith(".py") else sorted((ROOT / folder).rglob("test_*.py"))
        if not files:
            sys.exit(f"run_tests: {folder} has no test_*.py")
        for file in files:
            name = file.relative_to(ROOT).as_posix()
            report = LOGS / f"{name.replace('/', '-')}.xml"
            parts.append(Part(name, [str(PYTHON), "-m", "pytest", "-q", "-ra", "-p", "no:cacheprovider", name, f"--junitxml={report}"], report))
    return parts


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--build", default="build")
    arguments.add_argument("--checks", action="store_true", help="format, include directions, sizes and generated docs too")
    arguments.add_argument("--programs", nargs="*", help="only these of the programs that were built; all where it is not given")
    arguments.add_argument("--pytest", nargs="*", default=[], help="folders or files")
    arguments.add_argument("--jobs", type=int, default=os.cpu_count())
    options = arguments.parse_args()
    global BUILD, LOGS, TIMES
    BUILD = ROOT / options.build
    LOGS = BUILD / "test-logs"
    TIMES = LOGS / "seconds.txt"
    LOGS.mkdir(parents=True, exist_ok=True)
    start = time.monotonic()
    outcomes = run_all(parts_of(options), max(options.jobs, 1))
    skips = [(name, reason) for outcome in outcomes for name, reason in outcome.skipped]
    avoidable = [skip for skip in skips if not HARDWARE.search(skip[1])] if os.environ.get("CI") == "true" else []
    for name, reason in skips:
        print(f"skipped: {name}: {reason}" + (" (this machine can have it, so it counts as a failure)" if (name, reason) in avoidable else ""))
    passed, failed = sum(o.passed for o in outcomes), sum(o.failed for o in outcomes) + len(avoidable)
    print(f"{time.monotonic() - start:.0f} s")
    print(f"{passed} passed, {failed} failed" + (f", {len(skips)} skipped" if skips else ""))
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
