"""Trains models/nano.yaml once and puts what the terminal shows into README.md: .deps-test/bin/python tests/docs/capture.py [BUILD]"""
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
BLOCK = re.compile(r"(<!-- capture: made by tests/docs/capture.py -->\n```\n).*?(^```$)", re.M | re.S)


def main():
    build = sys.argv[1] if len(sys.argv) > 1 else "build"
    command = ["lockstep", "train", "-f", "models/nano.yaml", "--device", "cpu"]
    done = subprocess.run([ROOT / build / "bin" / command[0], *command[1:]], cwd=ROOT, capture_output=True, text=True, check=True)
    readme = ROOT / "README.md"
    shown = f"$ {' '.join(command)}\n{done.stdout}"
    text, count = BLOCK.subn(lambda found: found[1] + shown + found[2], readme.read_text())
    assert count == 1, "README.md has one block for the capture"
    readme.write_text(text)


if __name__ == "__main__":
    main()
