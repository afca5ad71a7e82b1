#!/usr/bin/env python3
"""Carries out the Dockerfile without Docker: each stage in a chroot of the Debian that its base image stands on. Then the image trains.

    tools/fresh/dockerfile.py --build-arg CUDA=0 --python PREFIX    needs root; PREFIX holds the Python of the base image (bin/python3.12)

It knows the instructions that this Dockerfile has. FRESH_CCACHE=DIR shows a cache of compiled files to the stage that compiles.
"""
import argparse
import fnmatch
import json
import os
import pathlib
import re
import shutil
import string
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
# What an image of a slim Python has beside it: the libraries that its modules are linked to.
IMAGE = "ca-certificates,netbase,tzdata,libssl3,libffi8,zlib1g,libbz2-1.0,liblzma5,libreadline8,libsqlite3-0,libncursesw6,libuuid1"


def parse(text: str) -> list[tuple[str, str]]:
    """(word, rest) of each instruction, continued lines joined."""
    joined = re.sub(r"\\\n\s*", "", "\n".join(line for line in text.splitlines() if not line.startswith("#")))
    return [(word, rest) for word, rest in (line.split(" ", 1) for line in joined.splitlines() if line)]


def ignored(context: pathlib.Path) -> list[str]:
    file = context / ".dockerignore"
    return [line for line in file.read_text().split("\n") if line and not line.startswith("#")] if file.exists() else []


def in_root(root: pathlib.Path, variables: dict[str, str], *command: str) -> None:
    words = ["in_root", str(root), "env", *(f"{name}={value}" for name, value in variables.items()), *command]
    subprocess.run(["bash", "-ec", '. "$0"; "$@"', str(ROOT / "tools/fresh/chroot.sh"), *words], check=True)


class Stage:
    """One FROM and what follows it: a chroot, its variables, its folder."""

    def __init__(self, name: str, image: str, work: pathlib.Path, python: pathlib.Path):
        version, release = re.fullmatch(r"python:([\d.]+)-slim-(\w+)", image).groups()
        self.name, self.root = name, work / (name or "image")
        self.variables, self.folder, self.command = {}, "/", {"ENTRYPOINT": [], "CMD": []}
        subprocess.run(["bash", "-ec", '. "$0"; make_root "$@"', str(ROOT / "tools/fresh/chroot.sh"), release, str(self.root), IMAGE], check=True)
        shutil.copytree(python, self.root / "usr/local", symlinks=True, dirs_exist_ok=True, ignore=shutil.ignore_patterns("test", "__pycache__", "site-packages"))
        self.run(f"ldconfig && ln -sf python{version} /usr/local/bin/python && python -m ensurepip >/dev/null && ln -sf pip3 /usr/local/bin/pip && pip --version")

    def run(self, shell: str) -> None:
        in_root(self.root, self.variables, "sh", "-c", f"cd {self.folder} && {shell}")

    def copy(self, sources: list[pathlib.Path], target: str, skip: list[str]) -> None:
        into = self.root / pathlib.PurePosixPath(self.folder, target).relative_to("/")
        into.mkdir(parents=True, exist_ok=True)
        for source in sources:
            if source.is_dir():
                top = str(source)
                shutil.copytree(source, into, symlinks=True, dirs_exist_ok=True,
                                ignore=lambda folder, names: [name for name in names if folder == top and any(fnmatch.fnmatch(name, one) for one in skip)])
            else:
                shutil.copy2(source, into)


def build(instructions: list[tuple[str, str]], context: pathlib.Path, work: pathlib.Path, python: pathlib.Path, given: dict[str, str]) -> Stage:
    stages: list[Stage] = []
    for word, rest in instructions:
        print(f"dockerfile: {word} {rest}", flush=True)
        stage = stages[-1] if stages else None
        filled = string.Template(rest).safe_substitute(stage.variables if stage else {})
        if word == "FROM":
            image, _, name = rest.partition(" AS ")
            stages.append(Stage(name, image, work, python))
        elif word == "ARG":
            name, _, value = rest.partition("=")
            stage.variables[name] = given.get(name, value)
        elif word == "ENV":
            stage.variables.update(pair.split("=", 1) for pair in filled.split())
        elif word == "WORKDIR":
            stage.folder = filled
            (stage.root / filled.lstrip("/")).mkdir(parents=True, exist_ok=True)
        elif word == "COPY" and filled.startswith("--from="):
            name, source, target = filled.removeprefix("--from=").split()
            other = next(one for one in stages if one.name == name)
            stage.copy(sorted(other.root.glob(source.lstrip("/"))), target, [])
        elif word == "COPY":
            source, target = filled.split()
            stage.copy([context / source], target, ignored(context))
        elif word == "RUN":
            with_cache(stage, rest)
        elif word in ("ENTRYPOINT", "CMD"):
            stage.command[word] = json.loads(rest)
        else:
            sys.exit(f"dockerfile: {word} is not known here")
    return stages[-1]


def with_cache(stage: Stage, shell: str) -> None:
    cache = os.environ.get("FRESH_CCACHE")
    if not cache or "make " not in shell:
        return stage.run(shell)
    inside = stage.root / "root/.cache/ccache"
    inside.mkdir(parents=True, exist_ok=True)
    subprocess.run(["mount", "--bind", cache, inside], check=True)
    try:
        stage.run(shell)
    finally:
        subprocess.run(["umount", "-l", inside], check=True)


def try_out(image: Stage) -> None:
    """As `docker run` would: by the entry point, in its folder; also as somebody who is not root and has no home."""
    assert image.command["ENTRYPOINT"] == ["lockstep"]
    image.run("lockstep --version --verbose | sed -n 1,6p")
    image.run("lockstep train -f nano --max-steps 5 --name image && lockstep generate --run runs/image --prompt Once --max-tokens 8")
    data = f"{image.folder}/theirs"
    in_root(image.root, image.variables, "install", "-d", "-o", "1000", "-g", "1000", data)
    in_root(image.root, {**image.variables, "HOME": "/"}, "chroot", "--userspec=1000:1000", "/", "sh", "-c", f"cd {data} && lockstep train -f nano --max-steps 2")


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--build-arg", action="append", default=[], metavar="NAME=VALUE")
    arguments.add_argument("--python", type=pathlib.Path, required=True)
    arguments.add_argument("--work", type=pathlib.Path, help="where the chroots are made; they are taken away at the end")
    options = arguments.parse_args()
    work = pathlib.Path(tempfile.mkdtemp(prefix="lockstep-image-", dir=options.work or os.environ.get("TMPDIR", "/var/tmp")))
    try:
        context = work / "context"
        subprocess.run(["git", "clone", "-q", str(ROOT), str(context)], check=True)
        image = build(parse((context / "Dockerfile").read_text()), context, work, options.python, dict(pair.split("=", 1) for pair in options.build_arg))
        try_out(image)
        print("dockerfile: the image is good")
    finally:
        for root in work.iterdir():
            subprocess.run(["bash", "-c", '. "$0"; clean_root "$1"', str(ROOT / "tools/fresh/chroot.sh"), str(root)])
        work.rmdir()
    return 0


if __name__ == "__main__":
    sys.exit(main())
