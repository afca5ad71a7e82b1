"""Killed while it saves, twenty times and under six placements: the run goes on under the next one as if nothing had happened."""
import itertools
import os
import pathlib
import signal
import subprocess
import time

import pytest

from support.lockstep import LOCKSTEP, ROOT, Result, train, write_config

KILLS = 20
PLACEMENTS = [(2, ["parallel.shard=none"]), (4, ["parallel.shard=full"]), (3, ["parallel.shard=optimizer"]), (4, ["parallel.shard=full", "parallel.replicate=2"]),
              (2, ["parallel.shard=gradients"]), (4, ["parallel.shard=optimizer", "parallel.replicate=2"])]


def ranks_of(process) -> dict[int, int]:
    ranks = {}
    for pid in pathlib.Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split():
        variables = dict(entry.split("=", 1) for entry in pathlib.Path(f"/proc/{pid}/environ").read_text().split("\0") if "=" in entry)
        ranks[int(variables["RANK"])] = int(pid)
    return ranks


def half_saved(folder: Result) -> set[str]:
    return {path.name for path in (folder.folder / "checkpoints").glob("step-*.partial")}


def kill_in_a_save(folder: Result, command: list, saves: int, victim: int | None, slow: int) -> None:
    """In the middle of the last of so many saves. victim: a rank; None: the launcher, and with it all of them. slow: the rank whose disk is."""
    left = half_saved(folder)  # by the one before, until this start clears it away
    env = {**os.environ, "LOCKSTEP_TEST_FAULT": f"rank={slow} action=slow_disk ms=30"}
    with open(folder.folder.parent / "output.txt", "w") as output:
        process = subprocess.Popen(command, cwd=ROOT, stdout=output, stderr=output, env=env)
    try:
        seen, deadline = set(), time.monotonic() + 120
        while len(seen) < saves:
            assert process.poll() is None and time.monotonic() < deadline, pathlib.Path(output.name).read_text()
            now = half_saved(folder)
            left &= now
            seen |= now - left
            time.sleep(0.001)
        time.sleep(0.001 * (13 * saves % 40))
        os.kill(process.pid if victim is None else ranks_of(process)[victim], signal.SIGKILL)
        process.wait(timeout=60)
    finally:
        process.kill()


def whole(folder: Result) -> int:
    return max((int(path.name[5:]) for path in (folder.folder / "checkpoints").glob("step-??????")), default=0)


def test_twenty_kills_lose_nothing(tmp_path):
    config = write_config(tmp_path, trainer={"lr_schedule": "constant", "save_interval": 1, "max_checkpoints": 2}, checkpoint={"asynchronous": True, "wait_below_mb": 0})
    run = Result(0, "", "", tmp_path / "run")
    base = [str(LOCKSTEP), "train", "-f", str(config), "--output", str(tmp_path), "--name", "run", "--device", "cpu", "--threads", "1", "--resume", "auto"]
    reached = 0
    for kill, (ranks, settings) in zip(range(KILLS), itertools.cycle(PLACEMENTS)):
        victim = None if kill % 4 == 3 else kill % ranks
        kill_in_a_save(run, [*base, "--ranks", str(ranks), *settings, "--max-steps", "1000"], 1 + kill % 3, victim, slow=(kill + 1) % ranks)
        assert whole(run) >= reached, "a checkpoint that was whole stays"
        reached = whole(run)
    assert reached >= KILLS // 2  # they did go on
    last = train(tmp_path, "run", config, "--threads", "1", "--ranks", "3", "parallel.shard=full", "--resume", "auto", "--max-steps", str(reached + 2))
    unbroken = train(tmp_path, "unbroken", config, "--threads", "1", "--ranks", "1", "checkpoint.save_at_end=false", "--save-interval", "0", "--max-steps", str(reached + 2))
    assert sorted(last.steps()) == list(range(1, reached + 3))
    assert last.losses() == pytest.approx(unbroken.losses(), rel=1e-5)
