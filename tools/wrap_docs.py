#!/usr/bin/env python3
"""Wraps the text of Markdown pages at 120 columns; --check only says which lines are longer. Tables, code, headings and links stay as they are."""
import argparse
import pathlib
import re
import subprocess
import sys
import textwrap

ROOT = pathlib.Path(__file__).resolve().parent.parent
WIDTH = 120
# Made by make_docs.py, from texts that have no lines.
GENERATED = {"docs/configuration.md", "docs/errors.md", "docs/coming_from.md", "docs/layouts.md", "docs/placements.md"}
ITEM = re.compile(r"^(\s*)([-*]|\d+\.) +")
FIXED = re.compile(r"^(#|\||<!--|    |\s*$|>|---|!\[|\[[^\]]+\]:)")


def blocks(lines: list[str]):
    """(may be wrapped, lines) of every paragraph and list item, and of what lies between them."""
    fenced, block = False, []
    for line in lines:
        fence = line.lstrip().startswith("```")
        inside_item = bool(block) and ITEM.match(block[0]) and line.startswith("  ")
        fixed = fenced or fence or (FIXED.match(line) and not (inside_item and line.strip() and not line.lstrip().startswith(("|", "#"))))
        if (fixed or ITEM.match(line)) and block:
            yield True, block
            block = []
        if fixed:
            yield False, [line]
        else:
            block.append(line)
        fenced ^= fence
    if block:
        yield True, block


def wrapped(text: str) -> str:
    result = []
    for free, lines in blocks(text.split("\n")):
        if not free or all(len(line) <= WIDTH for line in lines):
            result += lines
            continue
        item = ITEM.match(lines[0])
        first, rest = (item[0], " " * len(item[0])) if item else ("", "")
        # A word that begins a line must not make it a list, a heading or a quote.
        words = " ".join([lines[0][len(first):], *(line.strip() for line in lines[1:])])
        made = textwrap.wrap(words, WIDTH, initial_indent=first, subsequent_indent=rest, break_long_words=False, break_on_hyphens=False)
        if any(re.match(r"\s*([-+*>#]|\d+\.) ", line) for line in made[1:]):
            made = textwrap.wrap(words, WIDTH - 12, initial_indent=first, subsequent_indent=rest, break_long_words=False, break_on_hyphens=False)
        result += made
    return "\n".join(result)


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--check", action="store_true")
    options = arguments.parse_args()
    listed = subprocess.run(["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.md"], cwd=ROOT, capture_output=True, text=True, check=True)
    wrong = []
    for name in listed.stdout.split():
        path = ROOT / name
        if name in GENERATED or not path.exists():
            continue
        text = path.read_text()
        made = wrapped(text)
        if made == text:
            continue
        wrong.append(name)
        if not options.check:
            path.write_text(made)
    if options.check and wrong:
        print("\n".join(f"{name}: text is wider than {WIDTH} columns: run 'make format'" for name in wrong))
        return 1
    print("docs: good" if not wrong else f"wrapped: {', '.join(wrong)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
