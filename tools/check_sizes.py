#!/usr/bin/env python3
"""Checks that rooms stay small: files of at most 400 lines, functions of at most 80, at most 25 files on one level of a folder.

What is over the limit today stands in the tables below, with its size and the reason; a size there may only shrink.
"""
import argparse
import ast
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
FILE_LINES, FUNCTION_LINES, ROOM_FILES = 400, 80, 25
BRACES = {".h", ".cpp", ".cu", ".cuh", ".rs"}
SOURCES = BRACES | {".py", ".sh", ".cmake"}
ROOMS = ("src", "include", "python", "examples", "tests", "tools", "cmake", "bench")

# path -> (lines, why)
LONG_FILES = {
}
# path::function -> (lines, why)
LONG_FUNCTIONS = {
    "src/config/table/data.cpp::data_options": (214, "a table of data"),
    "src/config/table/lora.cpp::lora_options": (98, "a table of data"),
    "src/config/table/run.cpp::monitor_options": (84, "a table of data"),
    "src/config/table/model.cpp::model_options": (169, "a table of data"),
    "src/config/table/trainer.cpp::rhythm": (120, "a table of data"),
    "src/text/native/src/jinja/machine.rs::eval_kind": (97, "one match, an arm a kind of expression"),
    "src/text/native/src/jinja/methods.rs::text_method": (97, "one match, an arm a method"),
}
# folder -> files
CROWDED = {
}

TYPE = re.compile(r"^(?:template\s*<.*>\s*)?(?:alignas\s*\([^)]*\)\s*)?(?:pub(?:\([a-z]+\))?\s+)?(?:unsafe\s+)?(?:class|struct|union|enum|trait|impl|mod)\b")
TEXT = r"//[^\n]*|/\*(?:.|\n)*?\*/|\"(?:\\(?:.|\n)|[^\"\\])*\"|'(?:\\[^\n]{1,8}?|[^'\\\n])'"
CPP_TEXT = re.compile(r'\bR"([^()\\ ]{0,16})\((?:.|\n)*?\)\1"|' + TEXT)
RUST_TEXT = re.compile(r'\br(#*)"(?:.|\n)*?"\1|' + TEXT)


def without_text(code: str, rust: bool) -> str:
    """The code with comments, strings and characters gone and every line where it was."""
    code = (RUST_TEXT if rust else CPP_TEXT).sub(lambda found: "\n" * found[0].count("\n"), code)
    return code if rust else re.sub(r"^[ \t]*#(?:[^\n\\]|\\(?:.|\n))*", lambda found: "\n" * found[0].count("\n"), code, flags=re.M)


def is_function(head: str, rust: bool) -> bool:
    """Whether a brace after this text, at the level of a file, a namespace or a type, opens a function's body."""
    if rust:
        return re.search(r"\bfn\b", head) is not None
    before_arguments = head.split("(", 1)[0]
    return "(" in head and "=" not in before_arguments.replace("operator=", "").replace("operator==", "") and not TYPE.match(head)


def name_of(head: str, rust: bool) -> str:
    if test := re.match(r"TEST(?:_[FP])?\((\w+), *(\w+)\)", head):
        return f"{test[1]}.{test[2]}"
    found = re.search(r"\bfn\s+(\w+)", head) if rust else re.search(r"([\w:~]+|operator\s*[^\s(]+)\s*\(", head)
    return found[1] if found else head[:40]


def is_value(head: str) -> bool:
    """Whether a brace after this text opens a value inside a function's head: an argument's default, or a member that a constructor starts with."""
    return head.count("(") > head.count(")") or re.search(r"\)\s*(?:noexcept\s*)?:\s*(?:[^:].*)?[\w>]$", head) is not None


def functions_with_braces(code: str, rust: bool):
    """(name, line, lines) of every function; what is inside one, lambdas too, counts as part of it."""
    line, head, head_line, inside = 1, "", 1, []  # inside: what each open brace belongs to, and the text before it
    for token in re.finditer(r"[{};]|\n|[^{};\n]+", without_text(code, rust)):
        piece, text = token[0], head.strip()
        if piece == "\n":
            line += 1
            head += " "
        elif piece == "{":
            if any(kind != "scope" for kind, _ in inside):
                inside.append(("inner", head))
            elif is_value(text) and not rust:
                inside.append(("value", head))
            elif is_function(text, rust):
                inside.append(("function", head))
                opened = (name_of(text, rust), head_line)
            else:
                inside.append(("data" if "=" in text else "scope", head))
            head = ""
        elif piece == "}":
            kind, before = inside.pop() if inside else ("scope", "")
            if kind == "function":
                yield *opened, line - opened[1] + 1
            head = before + "{}" if kind == "value" else ""
        elif piece == ";":
            head = ""
        else:
            if not text and piece.strip() and all(kind == "scope" for kind, _ in inside):
                head_line = line
            head += piece


def functions_of_python(code: str):
    def walk(node, outer):
        for child in ast.iter_child_nodes(node):
            if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef)) and not outer:
                yield child.name, child.lineno, child.end_lineno - child.lineno + 1
            else:
                yield from walk(child, outer)
    yield from walk(ast.parse(code), False)


def functions_of(path: str, code: str):
    suffix = pathlib.PurePath(path).suffix
    if suffix == ".py":
        return functions_of_python(code)
    return functions_with_braces(code, suffix == ".rs") if suffix in BRACES else ()


def over(kind: str, where: str, size: int, limit: int, known: dict, advice: str):
    """What is wrong with one thing's size, and with what the table says of it."""
    allowed = known[where][0] if where in known else None
    if allowed is None and size > limit:
        yield f"{where}: {size} {kind}, at most {limit}. {advice}"
    elif allowed is not None and size > allowed:
        yield f"{where}: {size} {kind}; it had {allowed}, and may only shrink. {advice}"
    elif allowed is not None and size <= limit:
        yield f"{where}: {size} {kind}, within the limit of {limit} now: take it out of the table in tools/check_sizes.py"


def check(files: dict[str, str], long_files: dict, long_functions: dict, crowded: dict) -> list[str]:
    """files: path -> text. Returns what is over the limits, and what the tables name in vain."""
    mistakes, rooms, seen = [], {}, set()
    for path, text in sorted(files.items()):
        room = path.rpartition("/")[0]
        rooms[room] = rooms.get(room, 0) + 1
        mistakes += over("lines", path, text.count("\n"), FILE_LINES, long_files, "Cut it along a seam.")
        for name, line, lines in functions_of(path, text):
            where = f"{path}::{name}"
            if where in seen and where in long_functions and lines <= FUNCTION_LINES:
                continue  # an overload of the one that the table names
            seen.add(where)
            mistakes += over(f"lines (from line {line})", where, lines, FUNCTION_LINES, long_functions, "Give its parts names.")
    for room, count in sorted(rooms.items()):
        mistakes += over("files on one level", room, count, ROOM_FILES, {name: (size,) for name, size in crowded.items()},
                         "Make a folder for one kind of them.")
    known = [*(set(long_files) - set(files)), *(set(long_functions) - seen), *(set(crowded) - set(rooms))]
    return mistakes + [f"{name}: tools/check_sizes.py names it, but it is not there any more" for name in sorted(known)]


def main() -> int:
    argparse.ArgumentParser(description=__doc__.splitlines()[0]).parse_args()
    tracked = subprocess.run(["git", "ls-files", "--cached", "--others", "--exclude-standard", *ROOMS], cwd=ROOT, capture_output=True, text=True, check=True)
    files = {path: (ROOT / path).read_text() for path in tracked.stdout.split("\n")
             if pathlib.PurePath(path).suffix in SOURCES and (ROOT / path).exists()}
    mistakes = check(files, LONG_FILES, LONG_FUNCTIONS, CROWDED)
    print("\n".join(mistakes) if mistakes else f"sizes: good ({len(files)} files)")
    return 1 if mistakes else 0


if __name__ == "__main__":
    sys.exit(main())
