"""Supervision with real processes: deaths, stalls, disagreements, stops, restarts. The workers are fake, the supervisor is not."""
import json
import os
import pathlib
import re
import signal
import time

import pytest

from fault_jobs import Heard, processes_with, wait_until

DEATHS = [
    # action, exit code of the job, words of the report
    ("action=kill", 6, ["signal 9 (SIGKILL"]),
    ("action=segv", 6, ["signal 11 (SIGSEGV, segmentation fault"]),
    ("action=abort", 6, ["signal 6 (SIGABRT"]),
    ("action=bus", 6, ["signal 7 (SIGBUS", "/dev/shm"]),
    ("action=exit code=7", 6, ["exited with code 7"]),
    ("action=exit code=0", 6, ["left with exit code 0 before the end"]),
    ("action=fail code=4", 4, ["exited with code 4", "[data] a test's own error"]),
    ("action=library", 3, ["libtorch_cpu.so", "LOCKSTEP_LIBTORCH"]),
]


@pytest.mark.parametrize("notices", [0, 1])
@pytest.mark.parametrize("action,code,words", DEATHS, ids=[d[0] for d in DEATHS])
def test_a_rank_that_dies_ends_the_job_and_is_named(start, action, code, words, notices):
    job = start("--ranks", 3, FAKE_FAULT=f"rank=1 step=4 phase=backward {action}", FAKE_NOTICE=notices)
    job.wait(30)
    assert time.time() - (job.folder / "ranks/1.log").stat().st_mtime < 5, "the log's last line was written right before the death"
    assert job.code == code, job.err
    assert "rank 1 of 3 died first, in step 4 while computing the backward pass" in job.err
    for word in words:
        assert word in job.err, job.err
    assert f"{job.folder}/ranks/1.log" in job.err and "| " in job.err and "fault: " in job.err
    assert "Connection closed" not in job.err
    assert "What to try" in job.err or action.startswith(("action=exit", "action=fail"))
    job.assert_nothing_left()


@pytest.mark.parametrize("phase", ["starting", "connecting", "building", "loading", "reading_data", "forward", "reducing", "updating", "saving", "finishing"])
def test_death_in_every_phase(start, phase):
    step = {"starting": 0, "connecting": 0, "building": 0, "loading": 0, "saving": 5, "finishing": 8}.get(phase, 3)
    job = start("--ranks", 2, FAKE_STEPS=8, FAKE_FAULT=f"rank=0 step={step} phase={phase} action=kill").wait()
    assert job.code == 6, job.out + job.err
    assert "rank 0 of 2 died first" in job.err and "SIGKILL" in job.err
    job.assert_nothing_left()


def test_what_a_dead_rank_started_is_gone_too(start):
    job = start("--ranks", 2, FAKE_FAULT="rank=1 step=2 action=grandchild;rank=1 step=4 action=kill").wait()
    assert job.code == 6
    job.assert_nothing_left()


def test_killing_lockstep_itself_takes_the_workers_along(start):
    job = start("--ranks", 2, FAKE_STEPS=100000)
    job.wait_for_step(2)
    assert len(job.workers()) == 2
    job.send(signal.SIGKILL)
    job.wait()
    wait_until(lambda: not processes_with(job.marker), seconds=3, what="the end of the workers")


def test_a_stalled_rank_is_named_and_the_job_ended(start):
    job = start("--ranks", 3, "monitor.stall_seconds=1", "monitor.stall_abort_seconds=2", FAKE_FAULT="rank=2 step=4 phase=reading_data action=stall").wait(20)
    assert job.code == 6
    assert re.search(r"rank 2 is reading data since \d+ s; 2 ranks \(0 and 1\) wait in all_reduce 7, gradients of block 0", job.out), job.out
    assert re.search(r"nothing has moved for \d+ s: rank 2 is reading data since \d+ s", job.err), job.err
    assert "The others wait for rank 2" in job.err
    job.assert_nothing_left()


def test_a_stall_that_passes_is_only_reported(start):
    job = start("--ranks", 2, "monitor.stall_seconds=0.5", "monitor.stall_abort_seconds=20", FAKE_FAULT="rank=1 step=4 action=slow ms=1500").wait()
    assert job.code == 0, job.err
    assert "rank 1 is computing the forward pass" in job.out and "moving again" in job.out


def test_long_phases_never_count_as_a_stall(start):
    job = start("--ranks", 2, "monitor.stall_seconds=0.5", "monitor.stall_abort_seconds=1.5",
                FAKE_STEPS=6, FAKE_FAULT="rank=0 step=5 phase=saving action=slow ms=4000;rank=1 step=0 phase=loading action=slow ms=4000").wait()
    assert job.code == 0, job.err
    assert "nothing has moved" not in job.out + job.err


@pytest.mark.parametrize("action,words", [
    ("kind", "rank 1 entered broadcast of 4096 bytes (gradients of block 0); ranks 0 and 2 entered all_reduce of 4096 bytes (gradients of block 0)"),
    ("size", "rank 1 entered all_reduce of 68 bytes"),
])
def test_ranks_that_enter_different_collectives_are_named(start, action, words):
    job = start("--ranks", 3, FAKE_FAULT=f"rank=1 step=4 action={action};rank=1 step=4 phase=updating action=stall").wait(20)
    assert job.code == 6
    assert "ranks disagree on operation 7 of group world" in job.err and words in job.err
    job.assert_nothing_left()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_one_signal_finishes_the_step_and_saves(start, number):
    job = start("--ranks", 2, FAKE_STEPS=100000, FAKE_SAVE=100000)
    job.wait_for_step(3)
    job.send(number)
    job.wait(20)
    assert job.code == 0, job.err
    assert "finishing the step and saving" in job.out
    assert "--name run --ranks 2 --resume auto" in job.out and "lockstep train -f" in job.out
    last = job.steps()[-1]
    assert (job.folder / f"checkpoints/step-{last:06}/manifest.json").exists()
    job.assert_nothing_left()
    resumed = start("--ranks", 2, "--resume", "auto", FAKE_STEPS=last + 3).wait()
    assert resumed.code == 0 and resumed.steps() == list(range(1, last + 4))
    assert f"step {last}/" not in resumed.out, "steps of the first start are not shown again"


def test_a_second_signal_ends_at_once(start):
    job = start("--ranks", 2, FAKE_STEPS=100000, FAKE_FAULT="rank=1 step=3 action=deaf;rank=1 step=4 action=slow ms=60000")
    job.wait_for_step(3)
    job.send(signal.SIGINT)
    time.sleep(0.3)
    assert job.process.poll() is None
    begun = time.monotonic()
    job.send(signal.SIGINT)
    job.wait(10)
    assert time.monotonic() - begun < 3
    assert job.code == 130
    assert "ended at once" in job.out
    job.assert_nothing_left()


def test_two_signals_of_one_wish_still_save(start):
    """torchrun passes SIGTERM on to a rank that the terminal has sent SIGINT."""
    job = start("--ranks", 2, FAKE_STEPS=100000)
    job.wait_for_step(3)
    job.send(signal.SIGINT)
    job.send(signal.SIGTERM)
    job.wait(20)
    assert job.code == 0 and "--resume auto" in job.out


def test_a_death_while_stopping_is_a_failure(start):
    """Rank 1 is held in step 4 until the wish to stop has come, and dies in the save that follows from it."""
    job = start("--ranks", 2, FAKE_STEPS=100000, FAKE_FAULT="rank=1 step=4 phase=forward action=slow ms=2000;rank=1 step=4 phase=saving action=kill")
    job.wait_for_step(3)
    job.send(signal.SIGTERM)
    job.wait(20)
    assert job.code == 6 and "rank 1 of 2 died first, in step 4 while saving" in job.err, job.err
    assert "finishing the step and saving" in job.out and "everything is saved" not in job.out


def test_restarts_go_on_from_the_newest_checkpoint(start):
    job = start("--ranks", 2, "--max-restarts", 2, FAKE_STEPS=12, FAKE_FAULT="rank=1 step=8 action=kill once=1").wait()
    assert job.code == 0, job.err
    assert "rank 1 of 2 died first, in step 8" in job.err
    assert "restart 1 of 2 from the newest whole checkpoint" in job.out and "step-000005" in job.out
    assert job.steps() == list(range(1, 13))
    assert "resume: auto" in (job.folder / "config.yaml").read_text()


def test_restarts_run_out(start):
    job = start("--ranks", 2, "--max-restarts", 1, FAKE_FAULT="rank=1 step=2 action=kill").wait()
    assert job.code == 6
    assert "restart 1 of 1 from the beginning" in job.out
    assert job.err.count("died first") == 2
    job.assert_nothing_left()


def test_what_a_person_must_mend_is_not_restarted(start):
    job = start("--ranks", 2, "--max-restarts", 3, FAKE_FAULT="rank=1 step=2 action=fail code=2").wait()
    assert job.code == 2 and "restart" not in job.out


def test_out_of_memory_kills_are_not_guessed(start):
    job = start("--ranks", 2, FAKE_FAULT="rank=1 step=2 action=kill").wait()
    assert "out-of-memory killer" not in job.err


@pytest.fixture
def small_memory():
    """A control group of 128 MiB, as the words to put before a command; skips where none can be made."""
    relative = next((line.split(":")[2] for line in open("/proc/self/cgroup") if line.split(":")[1] in ("memory", "")), "/").strip().lstrip("/")
    version_one = pathlib.Path("/sys/fs/cgroup/memory").is_dir()
    parent = pathlib.Path("/sys/fs/cgroup/memory" if version_one else "/sys/fs/cgroup") / relative
    group = parent / f"lockstep-test-{os.getpid()}"
    try:
        group.mkdir()
        (group / ("memory.limit_in_bytes" if version_one else "memory.max")).write_text(str(128 << 20))
        if not version_one:
            (group / "memory.swap.max").write_text("0")
    except OSError as error:
        if group.exists():
            group.rmdir()
        pytest.skip(f"no control group can be made here: {error}")
    yield ["sh", "-c", f'echo $$ > {group}/cgroup.procs && exec "$@"', "sh"]
    wait_until(lambda: not (group / "cgroup.procs").read_text(), what="an empty control group")
    group.rmdir()


def test_the_kernels_out_of_memory_killer_is_recognized(start, small_memory):
    job = start("--ranks", 2, prefix=small_memory, FAKE_STEPS=100000, FAKE_FAULT="rank=1 step=4 action=eat").wait(60)
    assert job.code == 6, job.err
    assert "rank 1 of 2 died first, in step 4" in job.err
    assert "killed, likely by the system's out-of-memory killer" in job.err and "less memory on the host" in job.err
    job.assert_nothing_left()


def test_headless_prints_json_lines_only(start):
    job = start("--ranks", 2, "--headless", FAKE_STEPS=6).wait()
    lines = [json.loads(line) for line in job.out.splitlines()]
    assert lines[0]["event"] == "plan" and lines[0]["ranks"] == 2 and lines[0]["backend"] == "cpu"
    assert [line["step"] for line in lines if "loss" in line] == [1, 2, 3, 4, 5, 6]
    assert lines[-1]["event"] == "end" and lines[-1]["status"] == "complete" and lines[-1]["exit_code"] == 0
    assert job.err == ""


def test_headless_failure(start):
    job = start("--ranks", 2, "--headless", FAKE_FAULT="rank=1 step=2 action=kill").wait()
    last = json.loads(job.out.splitlines()[-1])
    assert last["status"] == "failed" and last["rank"] == 1 and last["exit_code"] == 6 and "SIGKILL" in last["error"]
    assert "rank 1 of 2 died first" in job.err


def test_a_run_with_checkpoints_is_not_written_over(start):
    assert start("--ranks", 2, FAKE_STEPS=3).wait().code == 0
    again = start("--ranks", 2, FAKE_STEPS=3).wait()
    assert again.code == 2 and "already holds a run with checkpoints" in again.err


def test_resume_auto_without_a_name_takes_the_newest_run(start, tmp_path):
    assert start("--ranks", 2, name="nano-first", FAKE_STEPS=5).wait().code == 0
    job = start("--ranks", 2, "--resume", "auto", name=None, FAKE_STEPS=8).wait()
    assert job.code == 0 and "nano-first" in job.out
    assert (tmp_path / "nano-first/checkpoints/step-000008").exists()


def test_background_output_pipe_closed(start):
    """Training goes on when nobody reads its output any more."""
    job = start("--ranks", 2, FAKE_STEPS=30)
    job.process.stdout.close()
    assert job.process.wait(30) == 0
    assert job.steps()[-1] == 30


@pytest.mark.parametrize("phase,seconds", [("forward", 1), ("saving", 1)])
def test_a_stopped_rank_is_named(start, phase, seconds):
    """Also where it was at something that may take long: a stopped process is at nothing."""
    job = start("--ranks", 2, f"monitor.stall_seconds={seconds}", f"monitor.stall_abort_seconds={seconds + 2}", FAKE_FAULT=f"rank=0 step=5 phase={phase} action=stop").wait(20)
    assert job.code == 6, job.out + job.err
    stopped = re.search(r"rank 0 is stopped \(process (\d+) is in state T\); rank 1 waits in all_reduce", job.err)
    assert stopped, job.err
    assert "rank 0 is stopped" in job.out and "The others wait for rank 0" in job.err
    assert f"kill -CONT {stopped[1]}" in job.err
    job.assert_nothing_left()


def test_a_job_that_was_suspended_with_its_launcher_goes_on(start):
    """As a scheduler suspends it: everything stands still for longer than a stall may, the launcher too."""
    job = start("--ranks", 2, "monitor.stall_seconds=1", "monitor.stall_abort_seconds=2", FAKE_STEPS=100)
    job.wait_for_step(3)
    workers = job.workers()
    for pid in (job.process.pid, *workers):
        os.kill(pid, signal.SIGSTOP)
    time.sleep(4)
    job.send(signal.SIGCONT)
    time.sleep(0.3)
    for pid in workers:
        os.kill(pid, signal.SIGCONT)
    assert job.wait(30).code == 0, job.err
    assert job.steps()[-1] == 100


def test_a_disk_that_does_not_answer_hides_no_report(start, tmp_path):
    """The launcher leaves word in the run folder; where that takes forever, people hear of the end all the same."""
    (tmp_path / "run").mkdir()
    os.mkfifo(tmp_path / "run/end.json.tmp")  # whoever opens it to write waits for a reader
    job = start("--ranks", 2, FAKE_STEPS=10000, FAKE_FAULT="rank=1 step=5 phase=forward action=kill")
    heard = Heard(job, job.process.stderr)
    wait_until(lambda: any("rank 1 of 2 died first" in line for line in heard.lines()), what="the report")
    assert job.process.poll() is None, "it still waits for the disk"
    with open(tmp_path / "run/end.json.tmp"):
        assert job.process.wait(20) == 6


def test_a_rank_that_is_asked_to_stop_stops_the_run(start):
    job = start("--ranks", 2, FAKE_STEPS=10000)
    job.wait_for_step(3)
    os.kill(job.workers()[0], signal.SIGTERM)
    assert job.wait(20).code == 0 and "stopped; everything is saved. Resume with" in job.out, job.out + job.err
