#!/usr/bin/env python3
"""Writes the docs that are made from code: docs/configuration.md from the table of options, docs/coming_from.md from the tables of other
programs' keys, docs/errors.md from the catalogue of failures and tests/errors/*.json, docs/layouts.md from tests/layouts/table.json,
docs/placements.md from `lockstep plan`.

With --check it writes nothing and fails if a committed file differs.
"""
import argparse
import itertools
import json
import pathlib
import subprocess
import sys

import placements_doc

ROOT = pathlib.Path(__file__).resolve().parent.parent

ERRORS_OPENING = """# Errors

<!-- Made by `make docs` from the catalogue of failures and tests/errors/*.json; `make check` compares. -->

What goes wrong, by code, and what Lockstep says to mistakes. Exit codes: 2 command line or config, 3 machine, 4 data, 5 checkpoint, 6 a failed
run, 70 a bug in Lockstep.

## Codes

Failures that people meet have a code that stays the same. Errors and reports end with it; `lockstep explain CODE` prints what stands here,
`lockstep explain < LOG` finds codes and known messages (of Lockstep, NCCL, CUDA, Gloo, PyTorch and other trainers) in a log.
[troubleshooting.md](troubleshooting.md) goes by symptom.
"""

MISTAKES_OPENING = """## Mistakes

All mistakes of a file or a command line are reported together, before anything starts.
"""


def shell_word(word):
    return word if word and all(c.isalnum() or c in "-_./=,:" for c in word) else "'" + word + "'"


def error_entry(case):
    lines = [f"### {case['name']}", "", "```"]
    if "file" in case:
        name = "bad.json" if case["file"][0].startswith("{") else "bad.yaml"
        lines += [f"# {name}", *case["file"], ""]
    variables = "".join(f"{name}={shell_word(value)} " for name, value in case.get("environment", {}).items())
    lines.append(f"$ {variables}lockstep {' '.join(shell_word(word) for word in case['args'])}")
    return "\n".join([*lines, *case["error"], "```", f"Exit code {case['exit']}.", ""])


def errors_markdown(catalog):
    parts = [ERRORS_OPENING]
    for entry in catalog:
        parts.append(f"### {entry['code']} {entry['title']}\n\n{entry['symptom']}\n\n- Why: {entry['cause']}\n- Try: {entry['fix']}\n")
    parts.append(MISTAKES_OPENING)
    for table in sorted((ROOT / "tests" / "errors").glob("*.json")):
        parts.append(f"## {table.stem}\n")
        parts += [error_entry(case) for case in json.loads(table.read_text())]
    return "\n".join(parts)


LAYOUTS_OPENING = """# Layouts: what works with what

<!-- Made by `make docs` from tests/layouts/table.json; `make check` compares. -->

However a model lies over ranks, it trains the same. `layout_tests` (tests/layouts/) walks a table of layouts with eight living ranks: every pair of
values of two columns below meets in some case, each with every value of `shard`; `make test-layouts` walks thousands. Each case is compared with one
rank that takes the same batches: losses of ten steps and the evaluation (1e-5 in f32), every gradient by name (1e-5 of its largest entry), the reported
norm, what clipping makes of an update, the weights at the end. Cases that sum in the same order give the same bits: all of `none`, `optimizer`,
`gradients` and `full` with one micro-batch a step; `none` and `optimizer`, and `gradients` and `full`, with several. A switch for each rule of sharding
breaks it on purpose, and the table shows it.

## Columns
"""


def not_yet(table, values):
    return any(all(values[column] in allowed for column, allowed in rule["when"].items()) for rule in table["not yet"])


def what_works(table):
    """A row for each combination of the columns that some rule is about; the others go with everything."""
    named = {name for rule in table["not yet"] for name in rule["when"]}
    *columns, shards = [column for column in table["columns"] if column["name"] in named]
    lines = ["", "## What works", "", f"With all of {', '.join(column['name'] for column in table['columns'] if column['name'] not in named)}:", "",
             "| " + " | ".join([column["name"] for column in columns] + [value["name"] for value in shards["values"]]) + " |",
             "|---" * (len(columns) + len(shards["values"])) + "|"]
    for names in itertools.product(*[[value["name"] for value in column["values"]] for column in columns]):
        values = {column["name"]: name for column, name in zip(columns, names)}
        cells = ["not yet" if not_yet(table, {**values, shards["name"]: shard["name"]}) else "yes" for shard in shards["values"]]
        lines.append("| " + " | ".join([*names, *cells]) + " |")
    return lines


def value_row(column, value):
    settings = " ".join(f"`{setting}`" for setting in value.get("settings", []))
    return f"| {column['name']} | {value['name']} | {settings} |"


def layouts_markdown():
    table = json.loads((ROOT / "tests" / "layouts" / "table.json").read_text())
    lines = [LAYOUTS_OPENING, "| column | value | settings |", "|---|---|---|"]
    for column in table["columns"]:
        for value in column["values"]:
            lines.append(value_row(column, value))
    lines += ["", "Rows of `make test-layouts` have these as well:", "", "| column | value | settings |", "|---|---|---|"]
    lines += [value_row(column, value) for column in table["columns"] for value in column.get("more values", [])]
    lines += what_works(table) if table["not yet"] else ["", "All of it works."]
    for kind, title, text in (("refused", "Refused", "error"), ("not yet", "Not yet", "because")):
        if table[kind]:
            lines += ["", f"## {title}", ""]
        for rule in table[kind]:
            where = "; ".join(f"{column} {' or '.join(values)}" for column, values in rule["when"].items())
            lines.append(f"- {where}: {rule[text]}")
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--lockstep", default=ROOT / "build" / "bin" / "lockstep", help="the program to ask")
    parser.add_argument("--check", action="store_true", help="compare instead of writing")
    args = parser.parse_args()
    reference, coming_from = [
        subprocess.run([args.lockstep, "config", "reference", *more], check=True, capture_output=True, text=True).stdout for more in ([], ["coming-from"])
    ]
    catalog = json.loads(subprocess.run([args.lockstep, "explain", "--json"], check=True, capture_output=True, text=True, stdin=subprocess.DEVNULL).stdout)
    stale = []
    for name, text in {"configuration.md": reference, "coming_from.md": coming_from, "errors.md": errors_markdown(catalog), "layouts.md": layouts_markdown(),
                       "placements.md": placements_doc.markdown(args.lockstep)}.items():
        path = ROOT / "docs" / name
        if path.exists() and path.read_text() == text:
            continue
        stale.append(f"docs/{name}")
        if not args.check:
            path.parent.mkdir(exist_ok=True)
            path.write_text(text)
    if args.check and stale:
        sys.exit(f"out of date: {', '.join(stale)}. Run `make docs` and commit.")
    print("docs are up to date" if not stale else f"wrote {', '.join(stale)}")


if __name__ == "__main__":
    main()
