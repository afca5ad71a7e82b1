"""The package says its types: mypy finds nothing to object to, and knows what people write with it."""
import subprocess
import sys
import textwrap

import pytest

from support.lockstep import ROOT

pytest.importorskip("mypy", reason="tools/setup-test.sh installs it")


def check(*what):
    return subprocess.run([sys.executable, "-m", "mypy", "--strict", "--follow-imports=silent", "--ignore-missing-imports", "--no-site-packages",
                           "--cache-dir=/dev/null", "--python-version=3.10", *map(str, what)], cwd=ROOT / "python", capture_output=True, text=True, timeout=280)


def test_the_package_and_what_people_write_with_it(tmp_path):
    """In one go, as most of the time is mypy's start."""
    assert (ROOT / "python/lockstep/py.typed").exists(), "checkers believe only packages that say so"
    mine = tmp_path / "mine.py"
    mine.write_text(textwrap.dedent("""
        import lockstep
        from lockstep import Run, TrainerCallback, Trainer

        run: Run = lockstep.train("models/nano.yaml", max_steps=20)
        for line in run:
            print(line["step"])
        steps: int = run.checkpoints()[-1].step + lockstep.distributed.get_rank()
        loss: float = Trainer("mine", args={"max_steps": 3}).train().training_loss
        version: str = lockstep.__version__
        lockstep.attach("runs/mine").stop(timeout="soon")
        lockstep.Trainr("mine")
        run.checkpoints()[0].stepp
        loss = lockstep.attach("runs/mine").end
    """))
    done = check("lockstep", mine)
    found = [line for line in done.stdout.splitlines() if ": error: " in line]
    assert [line.split(":")[1] for line in found] == ["11", "12", "13", "14"], done.stdout + done.stderr
