"""A disk that fills up while a run trains and has room again later: the run goes on, and every line of it is written in the end."""
import os
import pathlib
import shutil
import signal

import pytest

from fault_jobs import Heard, wait_until
from support.full_disk import fill
from test_worker import TINY

pytestmark = pytest.mark.skipif(os.getuid() != 0 or not shutil.which("unshare"), reason="a small disk needs root and unshare")


def test_a_full_disk_ends_no_run(start, tmp_path):
    disk = tmp_path / "run"  # the run folder itself
    disk.mkdir()
    prefix = ["unshare", "--mount", "sh", "-c", f'mount -t tmpfs -o size=24m none {disk} && exec "$@"', "sh"]
    job = start(*TINY, "--ranks", 2, "--max-steps", 1000000, "--save-interval", 20, "monitor.tensorboard=true", worker=None, prefix=prefix)
    inside = pathlib.Path(f"/proc/{job.process.pid}/root{disk}")  # the disk, seen from outside
    job.folder = inside
    job.wait_for_step(25)
    heard = Heard(job)
    fill(inside / "filler")
    full_at = job.steps()[-1]
    said = wait_until(lambda: [line for line in heard.lines() if "cannot be written" in line], what="word of the full disk")
    assert "metrics.jsonl cannot be written (No space left on device). Training goes on; up to 16 MiB of its lines wait in memory" in said[0]
    os.unlink(inside / "filler")
    wait_until(lambda: (job.steps() or [0])[-1] > full_at + 60, what="lines again")
    wait_until(lambda: [line for line in heard.lines() if "is written again" in line], what="word that it is over")
    saved = wait_until(lambda: [path.name for path in (job.folder / "checkpoints").glob("step-*[0-9]") if int(path.name[5:]) > full_at], what="a checkpoint again")
    steps, metrics = job.steps(), job.metrics()
    heard.stop()
    job.send(signal.SIGINT)
    job.wait(30)
    assert job.code == 0, heard.text + job.out + job.err
    assert saved and steps == list(range(1, len(steps) + 1)), "every step once, in order"
    assert len([line for line in metrics if "is written again" in line.get("text", "")]) == 1
    assert (heard.text + job.out).count("cannot be written") == 1, "said once"
