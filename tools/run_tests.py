#!/usr/bin/env python3
"""Runs the test programs and pytest folders it is given and ends with one line: N passed, M failed[, K skipped]."""
import argparse
import os
import pathlib
import re
import subprocess
import sys
import time
import xml.etree.ElementTree as xml

ROOT = pathlib.Path(__file__).resolve().parent.parent


def read_junit(path: pathlib.Path) -> tuple[int, int, int]:
    total = failed = skipped = 0
    for case in xml.parse(path).getroot().iter("testcase"):
        total += 1
        if case.find("failure") is not None or case.find("error") is not None:
            failed += 1
        elif case.find("skipped") is not None or case.get("result") == "skipped":
            skipped += 1
    return total - failed - skipped, failed, skipped


def run(name: str, command: list[str], report: pathlib.Path, log: pathlib.Path) -> tuple[int, int, int]:
    report.unlink(missing_ok=True)
    start = time.monotonic()
    with log.open("w") as out:
        code = subprocess.run(command, cwd=ROOT, stdout=out, stderr=subprocess.STDOUT, env={**os.environ, "LOCKSTEP_BUILD": str(report.parent.parent)}).returncode
    try:
        passed, failed, skipped = read_junit(report)
    except (FileNotFoundError, xml.ParseError):
        passed, failed, skipped = 0, 1, 0  # it died before it could report
    if code != 0 and failed == 0 and code != 5:
        failed = 1
    print(f"{name:28} {passed:5} passed {failed:4} failed {skipped:4} skipped {time.monotonic() - start:7.1f} s", flush=True)
    if failed:
        lines = log.read_text(errors="replace").splitlines()
        keep = [i for i, line in enumerate(lines) if re.search(r"FAILED|Failure|Error|assert", line)]
        shown = lines[-120:] if not keep or len(lines) < 200 else lines[max(0, keep[0] - 10) : keep[0] + 60] + ["..."] + lines[-60:]
        print("\n".join(f"    {line}" for line in shown))
        print(f"    (whole log: {log})", flush=True)
    return passed, failed, skipped


def main() -> int:
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--build", default="build")
    arguments.add_argument("--programs", nargs="*", default=[])
    arguments.add_argument("--pytest", nargs="*", default=[])
    options = arguments.parse_args()
    build = ROOT / options.build
    logs = build / "test-logs"
    logs.mkdir(parents=True, exist_ok=True)
    counts = []
    for program in options.programs:
        report = logs / f"{program}.xml"
        counts.append(run(program, [str(build / "bin" / program), f"--gtest_output=xml:{report}", "--gtest_brief=1"], report, logs / f"{program}.log"))
    for folder in options.pytest:
        name = folder.replace("/", "-")
        report = logs / f"{name}.xml"
        python = ROOT / ".deps-test/bin/python"
        counts.append(run(folder, [str(python), "-m", "pytest", "-q", "-ra", folder, f"--junitxml={report}"], report, logs / f"{name}.log"))
    passed, failed, skipped = (sum(column) for column in zip(*counts)) if counts else (0, 1, 0)
    print(f"{passed} passed, {failed} failed" + (f", {skipped} skipped" if skipped else ""))
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
