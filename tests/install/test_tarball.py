"""The tarball, unpacked beside a LibTorch: the programs run, and C and C++ programs are built against it."""
import json
import pathlib
import shutil
import subprocess
import sys
import tarfile
import time

import pytest

from support.installed import SITE, good
from support.lockstep import BUILD, ROOT


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory):
    folder = tmp_path_factory.mktemp("unpacked here")
    good(sys.executable, ROOT / "tools/package.py", "dist", "--build", BUILD, "--output", folder)
    with tarfile.open(next(folder.glob("*.tar.gz"))) as packed:
        packed.extractall(folder, filter="data")
    (folder / "libtorch").symlink_to(SITE / "torch")  # as the zip for C++ is called
    return next(path for path in folder.glob("lockstep-*") if path.is_dir())


def test_it_runs_beside_libtorch(unpacked, tmp_path):
    lockstep = unpacked / "bin/lockstep"
    assert f"in {unpacked.parent / 'libtorch'} (found by lockstep, which it lies beside)" in good(lockstep, "--version", "--verbose", cwd=tmp_path)
    done = good(lockstep, "train", "-f", "models/nano.yaml", "--device", "cpu", "--ranks", "2", "--threads", "1", "--max-steps", "2", "--name", "run", cwd=tmp_path)
    assert "finished 2 steps" in done
    assert "lockstep" in (unpacked / "share/man/man1/lockstep.1").read_text() and (unpacked / "share/bash-completion/completions/lockstep").stat().st_size > 100
    assert (unpacked / "share/doc/lockstep/third_party.txt").exists() and (unpacked / "share/lockstep/examples/own-text/README.md").exists()


@pytest.fixture(scope="module")
def examples(unpacked, tmp_path_factory):
    folder = tmp_path_factory.mktemp("examples")
    cmake = ROOT / ".deps/bin/cmake"
    ninja = ["-G", "Ninja", f"-DCMAKE_MAKE_PROGRAM={ROOT / '.deps/bin/ninja'}"]
    good(cmake, "-S", unpacked / "share/lockstep/examples/cpp", "-B", folder, f"-DCMAKE_PREFIX_PATH={unpacked}", "-DCMAKE_BUILD_TYPE=Debug", *ninja)
    good(cmake, "--build", folder)
    return folder


def test_cpp_example_trains_stops_resumes_and_writes(examples, tmp_path):
    said = good(examples / "train", tmp_path / "runs", cwd=tmp_path,
                env={"LOCKSTEP_TRAINER_TARGET_DEVICE": "cpu", "LOCKSTEP_PARALLEL_THREADS": "1", "LOCKSTEP_DATA_VALIDATION_FRACTION": "0",
                     "LOCKSTEP_MONITOR_SAMPLE_TOKENS": "0"})
    steps = [int(line.split()[1]) for line in said.splitlines() if line.startswith("step ")]
    stopped = [int(pathlib.Path(line).name[5:]) for line in said.splitlines() if line.startswith("checkpoint ")]
    assert steps == list(range(1, 13)) and stopped[0] == 4 and 6 <= stopped[-1] < 12
    assert said.count("wrote: ") == 2


def test_c_example_gives_the_commands_losses(examples, unpacked, tmp_path):
    arguments = ["-f", "models/nano.yaml", "--device", "cpu", "--ranks", "1", "--threads", "1", "--max-steps", "3", "--log-interval", "1", "--output", tmp_path]
    said = good(examples / "losses", *arguments, "--name", "c", cwd=tmp_path)
    good(unpacked / "bin/lockstep", "train", *arguments, "--name", "command", cwd=tmp_path)
    lines = [json.loads(line) for line in (tmp_path / "command/metrics.jsonl").read_text().splitlines()]
    expected = [(line["step"], float(f"{line['loss']:.9g}")) for line in lines if "loss" in line]
    assert [(int(step), float(loss)) for step, loss in (line.split() for line in said.splitlines())] == expected


def test_a_program_that_is_killed_takes_its_run_along_and_saved(examples, tmp_path):
    run = tmp_path / "run"
    program = subprocess.Popen([examples / "losses", "-f", "models/nano.yaml", "--device", "cpu", "--ranks", "1", "--threads", "1", "--max-steps", "100000", "--log-interval", "1",
                                "--output", tmp_path, "--name", "run"], stdout=subprocess.PIPE, cwd=tmp_path)
    deadline = time.monotonic() + 120
    while '"step":2,' not in ((run / "metrics.jsonl").read_text() if (run / "metrics.jsonl").exists() else ""):
        assert time.monotonic() < deadline and program.poll() is None
        time.sleep(0.05)
    program.kill()
    program.communicate()
    while not (run / "end.json").exists() or (run / "lease").exists():
        assert time.monotonic() < deadline, "its run trains on"
        time.sleep(0.05)
    assert json.loads((run / "end.json").read_text())["status"] == "stopped" and list(run.glob("checkpoints/step-*/manifest.json"))


def test_a_failure_is_told_with_its_report(examples, tmp_path):
    done = subprocess.run([examples / "losses", "-f", "nowhere.yaml"], capture_output=True, text=True, timeout=60, cwd=tmp_path)
    assert done.returncode == 2 and "nowhere.yaml does not exist" in done.stderr


def test_misuse_is_answered_and_no_byte_is_lost(unpacked, tmp_path):
    """Compiled by hand, and watched by valgrind where it is there."""
    good("cc", "-std=c11", "-Wall", "-Wextra", "-Werror", "-g", "-I", unpacked / "include", ROOT / "tests/install/misuse.c", "-o", tmp_path / "misuse", "-L",
         unpacked / "lib", "-llockstep", f"-Wl,-rpath,{unpacked / 'lib'}")
    watches = [([], [])]
    if shutil.which("valgrind"):
        watches.append((["valgrind", "-q", "--error-exitcode=9", "--leak-check=full", "--errors-for-leak-kinds=definite,indirect"], ["watched"]))
    for number, (watch, more) in enumerate(watches):
        here = tmp_path / str(number)
        here.mkdir()
        assert "all as promised" in good(*watch, tmp_path / "misuse", unpacked / "bin/lockstep", *more, cwd=here)
        run = here / "runs/given-up"
        assert list(run.glob("checkpoints/step-*/manifest.json")) and not (run / "lease").exists()


def test_only_the_c_interface_is_visible(unpacked):
    symbols = good("nm", "-D", "--defined-only", unpacked / "lib/liblockstep.so").split("\n")
    names = {line.split()[2].split("@")[0] for line in symbols if len(line.split()) == 3 and line.split()[1] != "A"}
    assert names and all(name.startswith("lockstep_") for name in names)
    needed = good("readelf", "-d", unpacked / "lib/liblockstep.so")
    assert "libstdc++" not in needed and "libtorch" not in needed
