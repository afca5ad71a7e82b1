#!/usr/bin/env python3
"""Makes what people install without a compiler: a wheel for pip, or a tarball. LibTorch is in neither; both find it where they are put.

The same build gives the same bytes: entries are sorted, their time is that of the commit, and their modes are not the builder's.
"""
import argparse
import base64
import gzip
import hashlib
import io
import json
import os
import pathlib
import re
import subprocess
import sys
import tarfile
import tempfile
import time
import zipfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
CMAKE = ROOT / ".deps/bin/cmake"


def command(*words) -> str:
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"package: {' '.join(map(str, words))}\n{done.stdout}{done.stderr}")
    return done.stdout


def installed(build: pathlib.Path, prefix: pathlib.Path, *more) -> list[pathlib.Path]:
    """The files of an installed tree, sorted."""
    command(CMAKE, "--install", build, "--prefix", prefix, "--strip", *more)
    return sorted(path for path in prefix.rglob("*") if path.is_file())


def oldest_glibc(programs: list[pathlib.Path]) -> tuple[int, int]:
    """The C library that they need: the newest version that a symbol of theirs asks for."""
    asked = [tuple(map(int, version.split("."))) for program in programs
             for version in re.findall(r"\(GLIBC_(\d+\.\d+)", command("objdump", "-T", program))]
    return max(asked)[:2]


def source_time() -> int:
    """SOURCE_DATE_EPOCH, or when the commit was made; of sources without one, their newest file's: `git archive` gives all of them its commit's."""
    if given := os.environ.get("SOURCE_DATE_EPOCH"):
        return int(given)
    try:
        # Not the repository that an unpacked folder may lie in; and a checkout of somebody else's is a checkout too.
        asked = subprocess.run(["git", "-c", "safe.directory=*", "-C", ROOT, "log", "-1", "--format=%ct"], capture_output=True, text=True,
                               env={**os.environ, "GIT_CEILING_DIRECTORIES": str(ROOT.parent)})
        if asked.returncode == 0:
            return int(asked.stdout)
    except FileNotFoundError:
        pass  # no git
    return int(max(path.stat().st_mtime for room in ("src", "include", "python", "models", "docs") for path in (ROOT / room).rglob("*") if path.is_file()))


def about(build: pathlib.Path) -> dict:
    return json.loads(command(build / "bin/lockstep", "--version", "--json"))


# ---- the wheel

METADATA = """Metadata-Version: 2.4
Name: lockstep
Version: {version}
Summary: Trains and fine-tunes language models on every GPU you have
License-Expression: Apache-2.0
License-File: LICENSE
License-File: third_party.txt
Requires-Python: >=3.10
Requires-Dist: torch=={torch}
Classifier: Operating System :: POSIX :: Linux
Classifier: Environment :: GPU :: NVIDIA CUDA
Description-Content-Type: text/markdown

{readme}"""


class Wheel:
    """A zip with a list of its files and their hashes, as PEP 427 has it."""

    def __init__(self, path: pathlib.Path, stamp: int):
        self.zip = zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=6)
        self.time = time.gmtime(max(stamp, 315532800))[:6]  # a zip knows no time before 1980
        self.record = []

    def add(self, name: str, content: bytes, executable: bool = False) -> None:
        entry = zipfile.ZipInfo(name, self.time)
        entry.external_attr = (0o100755 if executable else 0o100644) << 16
        entry.compress_type = zipfile.ZIP_DEFLATED
        self.zip.writestr(entry, content)
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
        self.record.append(f"{name},sha256={digest},{len(content)}")

    def close(self, record: str) -> None:
        self.record.append(f"{record},,")
        entry = zipfile.ZipInfo(record, self.time)
        entry.external_attr = 0o100644 << 16
        self.zip.writestr(entry, "\n".join(self.record) + "\n")
        self.zip.close()


def make_wheel(build: pathlib.Path, output: pathlib.Path) -> pathlib.Path:
    built = about(build)
    with tempfile.TemporaryDirectory() as folder:
        prefix = pathlib.Path(folder)
        files = installed(build, prefix, "--component", "programs")
        binaries = [path for path in files if path.parent.name == "bin" or path.suffix == ".so"]
        major, minor = oldest_glibc(binaries)
        tag = f"py3-none-manylinux_{major}_{minor}_x86_64"
        path = output / f"lockstep-{built['version']}-{tag}.whl"
        wheel, info = Wheel(path, source_time()), f"lockstep-{built['version']}.dist-info"
        for source in sorted(path for path in (ROOT / "python/lockstep").rglob("*") if path.suffix == ".py" or path.name == "py.typed"):
            wheel.add(f"lockstep/{source.relative_to(ROOT / 'python/lockstep').as_posix()}", source.read_bytes())
        for file in files:
            name = file.relative_to(prefix).as_posix()
            if not name.startswith("share/doc/"):
                wheel.add(f"lockstep/{name}", file.read_bytes(), file in binaries or os.access(file, os.X_OK))
        for text in (ROOT / "LICENSE", build / "third_party.txt"):
            wheel.add(f"{info}/licenses/{text.name}", text.read_bytes())
        wheel.add(f"{info}/METADATA", METADATA.format(version=built["version"], torch=built["torch"], readme=(ROOT / "docs/install.md").read_text()).encode())
        wheel.add(f"{info}/WHEEL", f"Wheel-Version: 1.0\nGenerator: lockstep\nRoot-Is-Purelib: false\nTag: {tag}\n".encode())
        wheel.add(f"{info}/entry_points.txt", b"[console_scripts]\nlockstep = lockstep.program:main\n")
        wheel.close(f"{info}/RECORD")
    return path


# ---- the tarball

def make_dist(build: pathlib.Path, output: pathlib.Path) -> pathlib.Path:
    name = f"lockstep-{about(build)['version']}-linux-x86_64"
    path, stamp = output / f"{name}.tar.gz", source_time()
    with tempfile.TemporaryDirectory() as folder, path.open("wb") as file, gzip.GzipFile("", "wb", 6, file, mtime=stamp) as packed, \
            tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as tar:
        prefix = pathlib.Path(folder)
        for source in installed(build, prefix):
            entry = tarfile.TarInfo(f"{name}/{source.relative_to(prefix).as_posix()}")
            content = source.read_bytes()
            entry.size, entry.mtime, entry.mode = len(content), stamp, 0o755 if os.access(source, os.X_OK) else 0o644
            tar.addfile(entry, io.BytesIO(content))
    return path


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("kind", choices=["wheel", "dist"])
    arguments.add_argument("--build", type=pathlib.Path, default=ROOT / "build")
    arguments.add_argument("--output", type=pathlib.Path, default=ROOT / "dist")
    options = arguments.parse_args()
    os.umask(0o022)  # what is packed is for others, whatever this user hides
    options.output.mkdir(parents=True, exist_ok=True)
    path = {"wheel": make_wheel, "dist": make_dist}[options.kind](options.build.resolve(), options.output)
    print(f"{os.path.relpath(path)}  ({path.stat().st_size / 1e6:.1f} MB)")
    return 0


if __name__ == "__main__":
    sys.exit(main())
