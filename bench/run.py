"""Measures every bar we hold ourselves to, in one run: prints a table and writes build/bench.json. Exit code 1 where a bar is missed.
  python bench/run.py [--quick] [--only command first-step training checkpoint] [--docs]
"""
import argparse
import json
import pathlib
import re
import shutil
import signal
import sys

from measure import LOCKSTEP, ROOT, OthersWatch, Row, machine, say
from measurements import ALL

NOISY = 0.05  # of all cores: above, other work has moved the numbers


def table(rows: list[Row]) -> str:
    lines = [f"{'measurement':52} {'value':>9} {'bar':>11}  {'':6} how it came about"]
    for row in rows:
        bar = f"{'<=' if row.lower_is_better else '>='} {row.bar:g} {row.unit}"
        noise = f"  (other processes used {row.others:.0%} of the machine)" if row.others > NOISY else ""
        lines.append(f"{row.name:52} {row.value:6.2f} {row.unit:2} {bar:>11}  {'ok' if row.met else 'MISSED':6} {row.detail}{noise}")
    return "\n".join(lines)


def write_docs(page: pathlib.Path, about: dict, rows: list[Row]) -> None:
    """Puts this run's numbers between the marks of the page."""
    lines = [f"Measured {about['time']}, {about['lockstep']}: {about['cores']} cores of {about['cpu']}, {about['memory_gb']} GB, "
             f"PyTorch and LibTorch {about['torch']}, Python {about['python']}.", "",
             "| measurement | value | bar | how it came about | other work on the machine | command |", "|---|---|---|---|---|---|"]
    for row in rows:
        bar = f"{'at most' if row.lower_is_better else 'at least'} {row.bar:g} {row.unit}"
        lines.append(f"| {row.name} | {row.value:.2f} {row.unit}{'' if row.met else ' (missed)'} | {bar} | {row.detail} | {row.others:.0%} | `.deps-test/bin/python bench/run.py --only {row.group}` |")
    text = page.read_text()
    marked = re.compile(r"(<!-- bench:begin -->\n).*(<!-- bench:end -->)", re.DOTALL)
    if not marked.search(text):
        raise RuntimeError(f"{page} has no lines <!-- bench:begin --> and <!-- bench:end -->")
    page.write_text(marked.sub(lambda found: found[1] + "\n".join(lines) + "\n" + found[2], text))


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--quick", action="store_true", help="few repeats: for trying out, not for numbers to keep")
    arguments.add_argument("--only", nargs="*", choices=ALL, default=list(ALL), help="measure only these")
    arguments.add_argument("--scratch", type=pathlib.Path, default=ROOT / "build" / "bench", help="where runs are written; its disk is the one measured")
    arguments.add_argument("--output", type=pathlib.Path, default=ROOT / "build" / "bench.json")
    arguments.add_argument("--docs", action="store_true", help="put the numbers into docs/performance.md; for whole runs on a quiet machine")
    options = arguments.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # an exception, so that what was started is ended
    if not LOCKSTEP.exists():
        print(f"{LOCKSTEP} does not exist: build it with `make build`, or name another build with LOCKSTEP_BUILD.", file=sys.stderr)
        return 2
    options.scratch.mkdir(parents=True, exist_ok=True)
    rows = []
    try:
        for name in options.only:
            say(f"{name} ...")
            with OthersWatch() as watch:
                measured = ALL[name](options.scratch, options.quick)
            for row in measured:
                row.group, row.others = name, watch.share
            rows += measured
    finally:
        shutil.rmtree(options.scratch, ignore_errors=True)
    about = machine()
    report = {"machine": about, "quick": options.quick,
              "rows": [{"name": row.name, "command": row.command, "value": row.value, "unit": row.unit, "bar": row.bar, "met": row.met, "detail": row.detail,
                        "others": row.others, **row.raw} for row in rows]}
    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.write_text(json.dumps(report, indent=1) + "\n")
    print(table(rows))
    print(f"written to {options.output}")
    if options.docs:
        noisy = [row.name for row in rows if row.others > NOISY]
        if noisy:
            print(f"docs/performance.md stays as it is: other processes used more than {NOISY:.0%} of the machine during {', '.join(noisy)}", file=sys.stderr)
            return 1
        write_docs(ROOT / "docs" / "performance.md", about, rows)
    missed = [row.name for row in rows if not row.met]
    if missed:
        print(f"missed: {', '.join(missed)}", file=sys.stderr)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
