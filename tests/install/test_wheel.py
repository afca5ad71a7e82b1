"""The wheel, installed without its dependencies beside the set-up's LibTorch: trains, writes, and is a Python package."""
import json
import os
import pathlib
import re
import subprocess
import sys
import urllib.request
import zipfile

import pytest

from support.installed import SITE, good, plain_environment, run
from support.lockstep import BUILD, ROOT


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheel")
    good(sys.executable, ROOT / "tools/package.py", "wheel", "--build", BUILD, "--output", folder)
    return next(folder.glob("*.whl"))


@pytest.fixture(scope="module")
def environment(wheel, tmp_path_factory):
    """A virtual environment with the wheel, in a folder whose name has spaces, and torch beside it as pip would have put it."""
    folder = tmp_path_factory.mktemp("an environment of its own")
    good(sys.executable, "-m", "venv", "--without-pip", folder)
    good(sys.executable, "-m", "pip", "--python", folder / "bin/python", "install", "--no-deps", "--no-index", "--disable-pip-version-check", wheel)
    packages = next((folder / "lib").glob("python3*/site-packages"))
    for name in ("torch", "nvidia"):
        (packages / name).symlink_to(SITE / name)
    return folder


def test_wheel_says_what_it_is(wheel):
    with zipfile.ZipFile(wheel) as packed:
        names = packed.namelist()
        about = packed.read(next(name for name in names if name.endswith("/METADATA"))).decode()
        third_party = packed.read(next(name for name in names if name.endswith("/third_party.txt"))).decode()
        modes = {info.filename: info.external_attr >> 16 & 0o777 for info in packed.infolist()}
    assert "Requires-Dist: torch==2.11.0\n" in about and "License-Expression: Apache-2.0" in about
    for name in ("lockstep/bin/lockstep", "lockstep/bin/lockstep-worker", "lockstep/share/lockstep/models/nano.yaml",
                 "lockstep/share/lockstep/examples/python/multi_gpu_training.py", "lockstep/trainer.py", "lockstep/py.typed"):
        assert name in names
    if (BUILD / "lib/liblockstep_cuda.so").exists():
        assert "lockstep/lib/liblockstep_cuda.so" in names
    assert modes["lockstep/bin/lockstep"] == modes["lockstep/bin/lockstep-worker"] == 0o755
    assert not [name for name in names if "libtorch" in name or "__pycache__" in name]
    # Ubuntu 22.04 and Debian 12 are the oldest systems it is for: their C library is 2.35 and 2.36.
    major, minor = map(int, re.search(r"manylinux_(\d+)_(\d+)_x86_64", wheel.name).groups())
    built_on = tuple(map(int, os.confstr("CS_GNU_LIBC_VERSION").split()[1].split(".")))
    assert (major, minor) <= (2, 35) or built_on > (2, 36)  # a newer system than Debian 12 asks for its own
    for crate in ("tokenizers", "rayon"):
        assert f"crate {crate} " in third_party
    assert third_party.count("Permission is hereby granted") > 10


def test_the_same_build_gives_the_same_wheel(wheel, tmp_path):
    good(sys.executable, ROOT / "tools/package.py", "wheel", "--build", BUILD, "--output", tmp_path)
    assert (tmp_path / wheel.name).read_bytes() == wheel.read_bytes()


def test_programs_know_no_path_of_the_build(environment):
    packages = next((environment / "lib").glob("python3*/site-packages"))
    for program in ("bin/lockstep", "bin/lockstep-worker", "lib/liblockstep_cuda.so"):
        if (packages / "lockstep" / program).exists():
            paths = re.findall(r"(?:RUNPATH|RPATH).*\[(.*)\]", good("readelf", "-d", packages / "lockstep" / program))
            assert not any(str(ROOT) in path for path in paths), paths


def test_it_trains_and_writes_anywhere(environment, tmp_path):
    """From an empty folder, with nothing on PATH but the system: run files come along, LibTorch is the environment's."""
    lockstep = environment / "bin/lockstep"
    told = good(lockstep, "--version", "--verbose", cwd=tmp_path)
    assert f"in {environment.resolve()}" in told.replace(str(environment), str(environment.resolve())) and "crate tokenizers" in told
    good(lockstep, "train", "-f", "models/nano.yaml", "--device", "cpu", "--ranks", "2", "--threads", "1", "--max-steps", "2", "--name", "run", cwd=tmp_path)
    assert (tmp_path / "runs/run/metrics.jsonl").exists()
    text = good(lockstep, "generate", "--run", "runs/run", "--max-tokens", "3", "--device", "cpu", "--prompt", "Once", cwd=tmp_path)
    assert text.strip()
    assert "nano" in good(lockstep, "config", "show", "-f", "nano", cwd=tmp_path)


def test_it_serves_the_page(environment, tmp_path):
    server = subprocess.Popen([environment / "bin/lockstep", "ui", "--port", "0"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=tmp_path,
                              env=plain_environment())
    try:
        said = server.stdout.readline()
        address = re.search(r"http://127\.0\.0\.1:\d+", said)
        assert address, said
        with urllib.request.urlopen(address[0], timeout=20) as answer:
            assert answer.status == 200 and "<html" in answer.read().decode().lower()
    finally:
        server.terminate()
        server.wait(timeout=20)


def test_it_is_a_package(environment, tmp_path):
    """Imported by the environment's own Python, without torch; and `python -m lockstep` is the program."""
    script = ("import sys, lockstep, json; run = lockstep.train('nano', name='py', device='cpu', ranks=1, threads=1, max_steps=2, log_interval=1);"
              "print(json.dumps([[line['step'] for line in run if 'loss' in line], lockstep.__version__, 'torch' in sys.modules]))")
    steps, version, torch_is_imported = json.loads(good(environment / "bin/python", "-c", script, cwd=tmp_path))
    assert steps == [1, 2] and version.startswith("0.") and not torch_is_imported
    assert good(environment / "bin/python", "-m", "lockstep", "--version").startswith(f"lockstep {version} ")


def test_torch_elsewhere_on_pythons_path_is_found(environment, tmp_path):
    """As with an environment that sees another's packages: the interpreter knows where, the program would not."""
    packages = next((environment / "lib").glob("python3*/site-packages"))
    (packages / "torch").rename(packages / "torch-away")
    try:
        told = good(environment / "bin/lockstep", "--version", "--verbose", cwd=tmp_path, env={"PYTHONPATH": str(SITE)})
        assert f"in {SITE / 'torch'} (found by LOCKSTEP_LIBTORCH)" in told
    finally:
        (packages / "torch-away").rename(packages / "torch")


def test_all_that_is_linked_is_listed_with_its_license(environment):
    """Crates leave the paths of their sources in a program: each that is found there is in the list, and every entry's license has its text."""
    packages = next((environment / "lib").glob("python3*/site-packages"))
    told = good(environment / "bin/lockstep", "--version", "--verbose")
    listed = {(match[1], match[2]): match[3] for match in re.finditer(r"^    (\S.*?)  +(\S+)  +(\S.*)$", told, re.M)}
    text = next(packages.glob("lockstep*/**/third_party.txt")).read_text()
    linked = set()
    for program in ("lockstep", "lockstep-worker"):
        content = (packages / "lockstep/bin" / program).read_bytes()
        for place, name, version in re.findall(rb"/([^/]*)/([a-z][a-z0-9_-]*)-(\d+\.\d+\.\d+)/src/", content):
            if place not in (b"deps", b"vendor"):  # those of Rust's own library, which comes with a page of its own
                linked.add((f"crate {name.decode()}", version.decode()))
    assert len(linked) > 10 and linked <= listed.keys(), linked - listed.keys()
    assert re.search(r"^=+\nRust's standard library [\d.]+\n=+\n\n.{100}", text, re.M | re.S)
    for (name, version), license in listed.items():
        assert license not in ("", "unknown", "None") and f"{name} {version}" in text, name


def test_a_read_only_installation_trains(environment, tmp_path):
    """As in a container's image, or where an administrator installed it."""
    prefix = ["unshare", "--mount", "sh", "-ec", 'mount --bind "$1" "$1"; mount -o remount,ro,bind "$1"; shift; exec "$@"', "sh", environment]
    if run(*prefix, "true").returncode != 0:
        pytest.skip("needs root")
    assert run(*prefix, "touch", environment / "x").returncode != 0
    train = ["train", "-f", "nano", "--device", "cpu", "--ranks", "1", "--threads", "1", "--max-steps", "1", "--name", "run"]
    good(*prefix, environment / "bin/lockstep", *train, cwd=tmp_path)
    good(*prefix, environment / "bin/python", "-c", "import lockstep; print(lockstep.__version__, lockstep.Trainer)", cwd=tmp_path)
    assert (tmp_path / "runs/run/metrics.jsonl").exists()


def test_uninstalled_it_leaves_nothing(environment):
    """The last test: it takes the wheel away again."""
    good(sys.executable, "-m", "pip", "--python", environment / "bin/python", "uninstall", "--yes", "--disable-pip-version-check", "lockstep")
    packages = next((environment / "lib").glob("python3*/site-packages"))
    assert {path.name for path in packages.iterdir()} == {"torch", "nvidia"}
    assert not [path for path in (environment / "bin").iterdir() if "lockstep" in path.name]
