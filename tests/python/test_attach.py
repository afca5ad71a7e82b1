"""A run that someone else started, by its folder: it is told, fails, stops and ends as one that this process started."""
import json
import os
import pathlib
import signal
import subprocess
import time

import pytest

import lockstep
from support.lockstep import LOCKSTEP, write_config


def elsewhere(folder, *more, **variables):
    """Started by the command, not by this package."""
    config = write_config(folder, trainer={"max_steps": 100000, "lr_schedule": "constant"})
    process = subprocess.Popen([LOCKSTEP, "train", "-f", config, "--device", "cpu", "--ranks", "2", "--threads", "1", "--output", folder, "--name", "run", *more],
                               stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env={**os.environ, **variables})
    wait_for(folder / "run/metrics.jsonl", process)
    return process, lockstep.attach(folder / "run")


def wait_for(path, process):
    until = time.monotonic() + 120
    while not path.exists() and process.poll() is None:
        assert time.monotonic() < until, "it did not begin"
        time.sleep(0.02)


def test_a_run_that_fails_raises_what_a_started_one_raises(tmp_path):
    fault = {"LOCKSTEP_TEST_FAULT": "rank=1 step=3 phase=forward action=kill"}
    process, theirs = elsewhere(tmp_path, **fault)
    try:
        seen = []
        with pytest.raises(lockstep.RunFailed) as by_loop:
            for line in theirs:
                seen.append(line["step"])
        process.communicate(timeout=60)
    finally:
        process.kill()
    ours = lockstep.train(str(write_config(tmp_path)), output=str(tmp_path), name="ours", device="cpu", ranks=2, threads=1, env=fault)
    with pytest.raises(lockstep.RunFailed) as started:
        ours.wait()
    with pytest.raises(lockstep.RunFailed) as by_wait:
        theirs.wait()
    assert seen[:2] == [1, 2] and theirs.status == ours.status == "failed"
    for caught in (by_loop.value, by_wait.value):
        assert (caught.code, caught.explained, caught.fix) == (started.value.code, started.value.explained, started.value.fix) and caught.explained == "LS-605"
        assert caught.folder == tmp_path / "run" and "rank 1" in str(caught)
    assert theirs.end["rank"] == ours.end["rank"] == 1 and theirs.said in str(by_wait.value) + "\n"


def test_stopped_ended_and_left_without_a_word(tmp_path, monkeypatch):
    process, run = elsewhere(tmp_path)
    try:
        next(iter(run))
        assert run.status == "running" and run.end is None
        with pytest.raises(TimeoutError, match="still trains after 0.1 s"):
            run.wait(0.1)
        with pytest.raises(lockstep.LockstepError, match="config.yaml"):
            run.plan
        end = run.stop()
        assert end["status"] == run.status == "stopped" and process.wait(60) == 0 and run.stop() == end == run.wait()
        assert run.checkpoints()[-1].step == end["last_step"]
        run.kill()  # nothing is done to a run that is over
    finally:
        process.kill()

    # The first of kill()'s two signals asks for a stop: on a quick disk so small a model would have saved and stopped before the second.
    monkeypatch.setenv("LOCKSTEP_TEST_FAULT", "rank=0 action=slow_disk ms=300")
    again = run.resume(device="cpu", ranks=1)
    next(iter(again))
    run.kill()
    assert run.wait()["status"] == run.status == again.wait()["status"] == "ended"
    monkeypatch.delenv("LOCKSTEP_TEST_FAULT")

    again = run.resume(device="cpu", ranks=1)
    next(iter(again))
    again._process.send_signal(signal.SIGKILL)
    with pytest.raises(lockstep.RunFailed, match="ended without a word"):
        run.wait()
    assert run.status == "failed"


def test_a_run_of_another_machine_is_not_killed_from_here(tmp_path):
    (tmp_path / "config.yaml").touch()
    (tmp_path / "lease").write_text("1\n" + json.dumps({"host": "there", "boot": "another", "pid": os.getpid(), "start_ticks": 1, "pid_namespace": "x"}))
    run = lockstep.attach(tmp_path)
    assert run.status == "running"
    with pytest.raises(lockstep.LockstepError, match="trained on there"):
        run.kill()


@pytest.mark.parametrize("lines,status", [
    ([{"event": "started"}, {"step": 1, "loss": 2.0}, {"event": "finished", "reason": "complete"}], "complete"),
    ([{"event": "started"}, {"event": "finished", "reason": "stopped"}, {"event": "started"}, {"step": 1, "loss": 2.0}], "failed"),
    ([], "failed"),
], ids=["complete", "started again and lost", "never began"])
def test_a_folder_without_a_word_of_its_launcher(tmp_path, lines, status):
    """As an older version left it, or a launcher that was killed: what the ranks said counts."""
    (tmp_path / "config.yaml").touch()
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines))
    (tmp_path / "end.json").write_text("torn {")
    assert lockstep.attach(pathlib.Path(tmp_path)).status == status


def test_words_with_odd_line_ends_are_one_line():
    from lockstep.program import lines_of
    assert lines_of('{"text": "a\u2028b\x85c"}\n{}\n') == ['{"text": "a\u2028b\x85c"}', "{}"]
