"""Measures every bar we hold ourselves to, in one run: prints a table and writes build/bench.json.
  python bench/run.py [--quick] [--only command first-step training checkpoint]
"""
import argparse
import json
import pathlib
import shutil
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


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--quick", action="store_true", help="few repeats: for trying out, not for numbers to keep")
    arguments.add_argument("--only", nargs="*", choices=ALL, default=list(ALL), help="measure only these")
    arguments.add_argument("--scratch", type=pathlib.Path, default=ROOT / "build" / "bench", help="where runs are written; its disk is the one measured")
    arguments.add_argument("--output", type=pathlib.Path, default=ROOT / "build" / "bench.json")
    options = arguments.parse_args()
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
                row.others = watch.share
            rows += measured
    finally:
        shutil.rmtree(options.scratch, ignore_errors=True)
    report = {"machine": machine(), "quick": options.quick,
              "rows": [{"name": row.name, "command": row.command, "value": row.value, "unit": row.unit, "bar": row.bar, "met": row.met, "detail": row.detail,
                        "others": row.others, **row.raw} for row in rows]}
    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.write_text(json.dumps(report, indent=1) + "\n")
    print(table(rows))
    print(f"written to {options.output}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
