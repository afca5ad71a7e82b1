#!/usr/bin/env python3
"""Writes the pins with hashes: tools/requirements*.in name what is wanted, tools/requirements*.txt every wheel with its sha256.

Run it after changing a .in file. The wheels of each Python that Debian 12 and 13 and Ubuntu 24.04 have are listed.
"""
import json
import pathlib
import subprocess
import sys
import tempfile

TOOLS = pathlib.Path(__file__).resolve().parent
PYTHONS = ("3.11", "3.12", "3.13")
OPENING = "# Made by tools/pin.py from {name}: every wheel by version and content. Do not edit.\n"


def resolve(source: pathlib.Path, python: str, exact: bool) -> list[tuple[str, str, str]]:
    """(name, version, sha256) of what pip would install."""
    with tempfile.TemporaryDirectory() as folder:
        report = pathlib.Path(folder) / "report.json"
        command = [sys.executable, "-m", "pip", "install", "--dry-run", "--quiet", "--ignore-installed", "--only-binary=:all:", "--python-version", python,
                   "--target", folder, "--report", str(report), "-r", str(source)]
        subprocess.run(command + (["--no-deps"] if exact else []), check=True)
        items = json.loads(report.read_text())["install"]
    return [(item["metadata"]["name"].lower(), item["metadata"]["version"], item["download_info"]["archive_info"]["hashes"]["sha256"]) for item in items]


def pin(source: pathlib.Path, exact: bool, besides: set[str]) -> set[str]:
    hashes: dict[tuple[str, str], set[str]] = {}
    for python in PYTHONS:
        for name, version, digest in resolve(source, python, exact):
            if name not in besides:
                hashes.setdefault((name, version), set()).add(digest)
    versions: dict[str, set[str]] = {}
    for name, version in hashes:
        versions.setdefault(name, set()).add(version)
    for name, several in versions.items():
        if len(several) > 1:
            sys.exit(f"pin: {name} would be {' and '.join(sorted(several))} under different Pythons: pin one of them in {source.name}")
    lines = [OPENING.format(name=source.name)]
    for (name, version), digests in sorted(hashes.items()):
        lines.append(f"{name}=={version}" + "".join(f" \\\n    --hash=sha256:{digest}" for digest in sorted(digests)) + "\n")
    source.with_suffix(".txt").write_text("".join(lines))
    print(f"pin: {source.with_suffix('.txt').name}: {len(hashes)} packages")
    return set(versions)


def main() -> None:
    # LibTorch comes without what Python would need beside it; tests run over the same LibTorch, so they bring only the rest.
    libtorch = pin(TOOLS / "requirements.in", exact=True, besides=set())
    # What torch asks for to use a GPU from Python is not needed: the reference runs on a CPU.
    pin(TOOLS / "requirements-test.in", exact=False, besides=libtorch | {"triton", "cuda-bindings", "cuda-pathfinder", "cuda-toolkit"})


if __name__ == "__main__":
    main()
