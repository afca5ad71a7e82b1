"""The runner of tests counts what it should: parts that die, collect nothing or lie about their end; skips that this machine could do without."""
import os
import pathlib
import signal
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
REPORT = '''for word in "$@"; do case "$word" in --gtest_output=xml:*) report="${word#--gtest_output=xml:}";; esac; done
write() { printf '<testsuites><testsuite>%s</testsuite></testsuites>' "$1" > "$report"; }
'''
PASSES = '<testcase name="a" classname="T"/>'
FAILS = '<testcase name="b" classname="T"><failure message="no"/></testcase>'
SKIPS = '<testcase name="c" classname="T" result="skipped"><skipped message="%s"/></testcase>'


def run(folder, programs, *arguments, environment=os.environ, **variables):
    (folder / "bin").mkdir(parents=True, exist_ok=True)
    (folder / "test_programs.txt").write_text("\n".join(programs) + "\n")
    for name, script in programs.items():
        program = folder / "bin" / name
        program.write_text(f"#!/bin/sh\n{REPORT}{script}\n")
        program.chmod(0o755)
    environment = {key: value for key, value in environment.items() if key != "CI"}
    return subprocess.run([sys.executable, ROOT / "tools/run_tests.py", "--build", folder, *map(str, arguments)], capture_output=True, text=True, timeout=60,
                          env={**environment, **variables})


@pytest.mark.parametrize("script,code,says", [
    (f"write '{PASSES}'", 0, "1 passed, 0 failed\n"),
    (f"write '{PASSES}{FAILS}'; exit 1", 1, "1 passed, 1 failed\n"),
    (f"write '{PASSES}'; exit 3", 1, "every test passed, but it ended with 3"),
    ("write ''", 1, "it has no tests, or none was collected"),
    ("kill -SEGV $$", 1, "it ended with -11 before it could report"),
    (f"write '{PASSES}{SKIPS % 'needs a GPU'}'", 0, "skipped: T.c: needs a GPU\n"),
], ids=["passes", "fails", "passes and ends badly", "collects nothing", "dies", "skips"])
def test_what_a_program_says_and_how_it_ends_both_count(tmp_path, script, code, says):
    done = run(tmp_path, {"one": script})
    assert done.returncode == code and says in done.stdout, done.stdout + done.stderr


@pytest.mark.parametrize("reason,ci,code", [("not root", "", 0), ("not root", "true", 1), ("needs a GPU", "true", 0), ("this CPU has no AVX-512", "true", 0)])
def test_where_everything_can_be_had_only_hardware_excuses_a_skip(tmp_path, reason, ci, code):
    done = run(tmp_path, {"one": f"write '{PASSES}{SKIPS % reason}'"}, CI=ci)
    assert done.returncode == code, done.stdout
    assert ("so it counts as a failure" in done.stdout) == bool(code) and f"skipped: T.c: {reason}" in done.stdout


def test_every_program_that_was_built_is_run_and_an_empty_folder_is_no_success(tmp_path):
    done = run(tmp_path, {"one": f"write '{PASSES}'", "two": f"write '{FAILS}'; exit 1"})
    assert done.returncode == 1 and "1 passed, 1 failed" in done.stdout
    missing = run(tmp_path / "other", {})
    assert missing.returncode == 1 and "0 passed" in missing.stdout
    (tmp_path / "empty").mkdir()
    empty = run(tmp_path, {"one": f"write '{PASSES}'"}, "--pytest", tmp_path / "empty")
    assert empty.returncode == 1 and "has no test_*.py" in empty.stderr


def test_threads_that_wait_leave_their_core_to_other_parts(tmp_path):
    environment = {name: value for name, value in os.environ.items() if name != "OMP_WAIT_POLICY"}
    passive = {"one": f'[ "$OMP_WAIT_POLICY" = passive ] && write \'{PASSES}\''}
    assert run(tmp_path, passive, environment=environment).returncode == 0
    assert run(tmp_path, passive, environment=environment, OMP_WAIT_POLICY="active").returncode == 1, "who asks for something else gets it"
    asked = "import conftest, os; print(os.environ['OMP_WAIT_POLICY'])"
    done = subprocess.run([sys.executable, "-c", asked], cwd=ROOT / "tests", capture_output=True, text=True, env=environment)
    assert done.stdout == "passive\n", done.stderr


def test_signals_count_however_the_tests_were_started():
    """Under nohup, or as a background job of a script, SIGHUP and SIGINT are ignored, and whoever is started from there ignores them too."""
    def ignore():
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        signal.signal(signal.SIGINT, signal.SIG_IGN)

    command = "%s subprocess.run(['grep', 'SigIgn', '/proc/self/status'])"
    for imports, ignored in (("import subprocess;", 0b11), ("import subprocess, conftest;", 0)):
        done = subprocess.run([sys.executable, "-c", command % imports], cwd=ROOT / "tests", capture_output=True, text=True, preexec_fn=ignore)
        assert int(done.stdout.split()[1], 16) & 0b11 == ignored, done.stdout + done.stderr
