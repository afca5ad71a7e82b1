#!/usr/bin/env python3
"""What each source file is compiled with, also where those of a folder are compiled as one (LOCKSTEP_UNITY): for clang-tidy and editors.

    tools/compile_commands.py BUILD > compile_commands.json
"""
import json
import pathlib
import re
import sys


def single(commands, root):
    """One command a source file: that of the file which includes it, if one does."""
    for command in commands:
        whole = pathlib.Path(command["file"])
        if whole.parent.name != "Unity":
            yield command
            continue
        for included in re.findall(r'^#include "(.+)"$', whole.read_text(), re.M):
            source = str(root / included)
            yield {"directory": command["directory"], "file": source, "command": command["command"].replace(str(whole), source)}


def main():
    build = pathlib.Path(sys.argv[1]).resolve()
    commands = json.loads((build / "compile_commands.json").read_text())
    root = pathlib.Path(__file__).resolve().parent.parent
    json.dump(list(single(commands, root)), sys.stdout, indent=1)


if __name__ == "__main__":
    main()
