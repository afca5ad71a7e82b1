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

from support.lockstep import BUILD, ROOT

# The shipped run files, smaller and shorter: a start of LibTorch is what is left.
SMALL = {"LOCKSTEP_MODEL_NUM_LAYERS": "1", "LOCKSTEP_DATA_STORIES": "300", "LOCKSTEP_DATA_SEQ_LEN": "32", "LOCKSTEP_DATA_VALIDATION_FRACTION": "0",
         "LOCKSTEP_MONITOR_SAMPLE_TOKENS": "0", "LOCKSTEP_TRAINER_TARGET_DEVICE": "cpu", "LOCKSTEP_PARALLEL_THREADS": "1"}
SITE = next((ROOT / ".deps/lib").glob("python3*/site-packages"))


def run(*words, **options):
    plain = {name: value for name, value in os.environ.items() if not name.startswith(("LOCKSTEP_", "PYTHON"))}
    return subprocess.run([str(word) for word in words], capture_output=True, text=True, timeout=300, env={**plain, **SMALL, **options.pop("env", {})}, **options)


def good(*words, **options):
    done = run(*words, **options)
    assert done.returncode == 0, f"{words}\n{done.stdout}{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheel")
    good(sys.executable, ROOT / "tools/package.py", "wheel", "--build", BUILD, "--output", folder)
    return next(folder.glob("*.whl"))


@pytest.fixture(scope="module")
def environment(wheel, tmp_path_factory):
    """A virtual environment with the wheel, and torch beside it as pip would have put it."""
    folder = tmp_path_factory.mktemp("environment")
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
                 "lockstep/share/lockstep/examples/python/multi_gpu_training.py", "lockstep/trainer.py"):
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
    plain = {name: value for name, value in os.environ.items() if not name.startswith(("LOCKSTEP_", "PYTHON"))}
    server = subprocess.Popen([environment / "bin/lockstep", "ui", "--port", "0"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=tmp_path, env=plain)
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
