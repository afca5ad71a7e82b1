"""How the package finds and becomes the program."""
import os
import signal
import subprocess
import sys

import pytest

import lockstep
from support.lockstep import ROOT


def as_command(program, *words):
    return subprocess.run([sys.executable, "-m", "lockstep", *words], capture_output=True, text=True, timeout=60,
                          env={**os.environ, "PYTHONPATH": str(ROOT / "python"), "LOCKSTEP_PROGRAM": str(program)})


def script(path, text, mode=0o755):
    path.write_text(text)
    path.chmod(mode)
    return path


def test_the_command_becomes_the_program(tmp_path):
    """Its words arrive as they are, its status is the program's, and no signal is ignored that a shell would not ignore."""
    program = script(tmp_path / "my program", '#!/bin/sh\ngrep SigIgn /proc/self/status\nprintf "%s\\n" "$@"\nexit 7\n')
    done = as_command(program, "train", "a b", "", "--x=ü", "*")
    ignored, *words = done.stdout.splitlines()
    # Python ignores two signals by itself; others may have been ignored before it, as a script's background job ignores SIGQUIT.
    before = next(int(line.split()[1], 16) for line in open("/proc/self/status") if line.startswith("SigIgn"))
    before &= ~sum(1 << (number - 1) for number in (signal.SIGPIPE, signal.SIGXFSZ))
    assert (int(ignored.split()[1], 16) & ~before, words, done.returncode) == (0, ["train", "a b", "", "--x=ü", "*"], 7)


@pytest.mark.parametrize("text,mode,says", [
    (None, 0o755, "is no program that can be started"),
    ("#!/bin/sh\n", 0o644, "is no program that can be started"),
    ("\x7fELF of another machine", 0o755, "cannot be started: Exec format error"),
    ("#!/no/such/interpreter\n", 0o755, "cannot be started: No such file"),
], ids=["none", "not executable", "another machine's", "no interpreter"])
def test_a_program_that_cannot_be_started_is_said_in_a_line(tmp_path, monkeypatch, text, mode, says):
    program = tmp_path / "program"
    if text is not None:
        script(program, text, mode)
    done = as_command(program, "--version")
    assert done.returncode == 3 and says in done.stderr and "Traceback" not in done.stderr, done.stderr
    monkeypatch.setenv("LOCKSTEP_PROGRAM", str(program))
    with pytest.raises(lockstep.LockstepError, match=str(says)) as caught:
        lockstep.generate("x", model=tmp_path)
    assert caught.value.code == 3
    with pytest.raises(lockstep.LockstepError, match=str(says)):
        lockstep.train("nano")
