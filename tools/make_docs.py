#!/usr/bin/env python3
"""Writes the docs that are made from code: docs/configuration.md from the table of options, docs/coming_from.md from the tables of other
programs' keys, docs/errors.md from tests/errors/*.json.

With --check it writes nothing and fails if a committed file differs.
"""
import argparse
import json
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent

ERRORS_OPENING = """# Errors

<!-- Made by `make docs` from tests/errors/*.json; `make check` compares. -->

What each mistake looks like and what Lockstep says. All mistakes of a file or a command line are reported together, before anything
starts. Exit codes: 2 command line or config, 3 machine, 4 data, 5 checkpoint, 6 a failed run, 70 a bug in Lockstep.
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


def errors_markdown():
    parts = [ERRORS_OPENING]
    for table in sorted((ROOT / "tests" / "errors").glob("*.json")):
        parts.append(f"## {table.stem}\n")
        parts += [error_entry(case) for case in json.loads(table.read_text())]
    return "\n".join(parts)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--lockstep", default=ROOT / "build" / "bin" / "lockstep", help="the program to ask")
    parser.add_argument("--check", action="store_true", help="compare instead of writing")
    args = parser.parse_args()
    reference, coming_from = [
        subprocess.run([args.lockstep, "config", "reference", *more], check=True, capture_output=True, text=True).stdout for more in ([], ["coming-from"])
    ]
    stale = []
    for name, text in {"configuration.md": reference, "coming_from.md": coming_from, "errors.md": errors_markdown()}.items():
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
