"""The real worker under fire: killed at random moments, stalled, at odds with the others, stopped; and every time it goes on."""
import os
import pathlib
import random
import re
import signal
import subprocess
import time

import pytest

from fault_jobs import BIN, Heard, wait_until

TINY = ["model.hidden_size=64", "model.num_layers=2", "model.num_heads=2", "model.kv_heads=2", "model.intermediate_size=128", "model.max_seq_len=32",
        "data.stories=200", "data.validation_fraction=0", "trainer.log_interval=1", "trainer.warmup_steps=0", "monitor.sample_tokens=0", "--device", "cpu"]


def worker_of(job, rank):
    for pid in job.workers():
        try:
            if f"\0RANK={rank}\0" in "\0" + pathlib.Path(f"/proc/{pid}/environ").read_text():
                return pid
        except OSError:
            continue
    return None


def identity_of_metrics(folder):
    path = folder / "run/metrics.jsonl"
    return path.stat().st_ino if path.exists() else None


# How saves run, what of the run they are told by, and how many intervals a kill may lose. Beside training: each file takes 25 ms, so
# that many steps pass until a checkpoint is whole.
SAVES = {
    "waited for": (["checkpoint.asynchronous=false"], {}, 1),
    "small, so waited for": (["checkpoint.asynchronous=true"], {}, 1),
    "beside training": (["checkpoint.asynchronous=true", "checkpoint.wait_below_mb=0"], {"LOCKSTEP_TEST_FAULT": "rank=0 action=slow_disk ms=25"}, 2),
}


def steps_past_a_save(metrics):
    """For each checkpoint that became whole, how many steps were trained since it began."""
    last, past = 0, []
    for line in metrics:
        last = line["step"] if "loss" in line else last
        if line.get("event") == "checkpoint":
            past.append(last - line["step"])
    return past


@pytest.mark.parametrize("how", SAVES)
def test_killed_at_random_moments_it_always_goes_on(start, how):
    flags, fault, intervals = SAVES[how]
    moments = random.Random(list(SAVES).index(how) + 7)
    save_interval, total = 10, 100000
    past = []
    reached = 0
    for attempt in range(10):
        file_before = identity_of_metrics(start.folder)
        job = start(*TINY, "--ranks", 2, "--max-steps", total, "--resume", "auto", f"trainer.save_interval={save_interval}", *flags, worker=None, **fault)
        victim = moments.randrange(2)
        pid = wait_until(lambda: worker_of(job, victim), what="the worker")
        if attempt % 3:  # else: somewhere between its start and its first steps
            wait_until(lambda: (job.steps() or [0])[-1] > reached, what="a new step")
        time.sleep(moments.random() * 0.8)
        os.kill(pid, signal.SIGKILL)
        begun = time.monotonic()
        job.wait(20)
        assert time.monotonic() - begun < 5
        assert job.code == 6, job.out + job.err
        assert f"rank {victim} of 2 died first" in job.err and "SIGKILL" in job.err, job.err
        job.assert_nothing_left()
        if identity_of_metrics(start.folder) == file_before:
            continue  # it died before it came so far as to open its metrics
        resumed_at = [line["step"] for line in job.metrics() if line.get("event") == "started"][-1]
        past += steps_past_a_save(job.metrics())
        assert reached - resumed_at <= intervals * save_interval, f"attempt {attempt}: reached {reached}, went on from {resumed_at}"
        assert job.steps() == list(range(1, len(job.steps()) + 1)), "every step once"
        reached = max(resumed_at, len(job.steps()))
    assert reached > 3 * save_interval
    assert past and (max(past) > 0 if intervals == 2 else max(past) == 0), "the saves ran as they were meant to"
    last = start(*TINY, "--ranks", 2, "--max-steps", reached + 5, "--resume", "auto", worker=None).wait()
    assert last.code == 0, last.out + last.err
    assert last.steps() == list(range(1, reached + 6))


# Ranks, and how the model is cut between them.
CUTS = [(2, []), (3, ["parallel.shard=optimizer"]), (2, ["parallel.shard=gradients"]), (3, ["parallel.shard=full"]),
        (4, ["parallel.shard=full", "parallel.replicate=2"]), (2, ["parallel.shard=full", "--optimizer", "adamw"])]


def test_killed_while_saving_it_goes_on_under_another_cut(start):
    moments = random.Random(5)
    common = [*TINY, "trainer.global_batch_size=12", "trainer.batch_size=1", "--max-steps", 100000, "--resume", "auto", "trainer.save_interval=3", "checkpoint.asynchronous=false"]
    checkpoints = start.folder / "run/checkpoints"
    whole = 0
    for attempt in range(20):
        ranks, cut = CUTS[attempt % len(CUTS)]
        victim = moments.randrange(ranks)
        job = start(*common, "--ranks", ranks, *cut, worker=None, LOCKSTEP_TEST_FAULT=f"rank={victim} action=slow_disk ms=30")
        pid = wait_until(lambda: worker_of(job, victim), what="the worker")
        saves = 1 + attempt % 2  # of which the last is not to become whole
        wait_until(lambda: (job.steps() or [0])[-1] >= whole + 3 * saves and list(checkpoints.glob("*.partial")), what="a save")
        time.sleep(moments.random() * 0.1)
        os.kill(pid, signal.SIGKILL)
        job.wait(20)
        assert job.code == 6 and f"rank {victim} of {ranks} died first" in job.err, job.out + job.err
        job.assert_nothing_left()
        newest = max([int(path.name[5:]) for path in checkpoints.iterdir() if re.fullmatch(r"step-\d{6}", path.name)], default=0)
        assert newest >= whole + 3 * (saves - 1), f"attempt {attempt}: {newest} after {whole}"
        whole = newest
    last = start(*common[:-2], "--ranks", 1, "--max-steps", whole + 4, worker=None).wait()
    assert last.code == 0, last.out + last.err
    assert last.steps() == list(range(1, whole + 5)), "every step once"


@pytest.mark.parametrize("action,code,words", [
    ("segv", 6, "SIGSEGV"),
    ("exit", 6, "exited with code 7"),
    ("throw", 70, "a test asked this rank to fail"),
])
@pytest.mark.parametrize("phase", ["reading_data", "backward"])
def test_a_rank_that_breaks_is_the_one_reported(start, action, code, words, phase):
    job = start(*TINY, "--ranks", 3, "--max-steps", 20, worker=None, LOCKSTEP_TEST_FAULT=f"rank=2 step=4 phase={phase} action={action}").wait()
    assert job.code == code, job.err
    assert re.search(r"rank 2 of 3 died first, in step 4 while (reading data|computing the backward pass)", job.err), job.err
    assert words in job.err and "closed by peer" not in job.err
    job.assert_nothing_left()


def test_death_while_saving_leaves_the_checkpoint_before(start):
    job = start(*TINY, "--ranks", 2, "--max-steps", 20, "trainer.save_interval=5", worker=None, LOCKSTEP_TEST_FAULT="rank=1 step=10 phase=saving action=kill").wait()
    assert job.code == 6 and "in step 10 while saving a checkpoint" in job.err
    assert "--resume auto" in job.err
    resumed = start(*TINY, "--ranks", 2, "--max-steps", 20, "trainer.save_interval=5", "--resume", "auto", worker=None).wait()
    assert resumed.code == 0, resumed.err
    assert resumed.steps() == list(range(1, 21))


def test_a_stalled_rank_is_named(start):
    job = start(*TINY, "--ranks", 2, "--max-steps", 20, "monitor.stall_seconds=2", "monitor.stall_abort_seconds=4", worker=None,
                LOCKSTEP_TEST_FAULT="rank=1 step=4 phase=reading_data action=stall").wait(60)
    assert job.code == 6, job.err
    assert "rank 1 is reading data since" in job.out and re.search(r"rank 0 waits in all_reduce \d+, gradients of", job.out), job.out
    assert "The others wait for rank 1" in job.err
    job.assert_nothing_left()


def state_of(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except OSError:
        return None


def test_a_stopped_rank_is_named(start):
    job = start(*TINY, "--ranks", 2, "--max-steps", 100000, "monitor.stall_seconds=1", "monitor.stall_abort_seconds=3", worker=None)
    job.wait_for_step(3)
    pid = worker_of(job, 0)
    os.kill(pid, signal.SIGSTOP)
    job.wait(30)
    assert job.code == 6, job.err
    assert re.search(rf"nothing has moved for \d+ s: rank 0 is stopped \(process {pid} is in state T\); rank 1 waits in all_reduce", job.err), job.err
    assert "The others wait for rank 0" in job.err and f"kill -CONT {pid}" in job.err
    job.assert_nothing_left()


def test_a_rank_that_is_stopped_while_others_save_is_named_and_may_go_on(start):
    """Rank 0 waits for its part of the checkpoint, which may take long: nothing is ended, but why it takes so long is told."""
    job = start(*TINY, "--ranks", 2, "--max-steps", 6, "monitor.stall_seconds=1", "monitor.stall_abort_seconds=2", "trainer.save_interval=3", worker=None,
                LOCKSTEP_TEST_FAULT="rank=1 step=3 phase=saving action=stop")
    heard = Heard(job)
    said = wait_until(lambda: [line for line in heard.lines() if "is stopped" in line], what="word of the stopped rank")
    pid = worker_of(job, 1)
    assert f"rank 1 is stopped (process {pid} is in state T)" in said[0] and f"kill -CONT {pid}" in said[0], said
    time.sleep(3)  # longer than a stall may last
    assert job.process.poll() is None, heard.text
    heard.stop()
    os.kill(pid, signal.SIGCONT)
    assert job.wait(30).code == 0, job.err
    assert job.steps() == [1, 2, 3, 4, 5, 6]


def test_a_disk_that_does_not_answer_is_named_and_may_come_back(start):
    """Rank 1 sleeps within the kernel while it saves. Where the disk only takes its time, nothing is said of it."""
    job = start(*TINY, "--ranks", 2, "--max-steps", 6, "monitor.stall_seconds=2", "monitor.stall_abort_seconds=3", "trainer.save_interval=3", worker=None,
                LOCKSTEP_TEST_FAULT="rank=1 step=3 phase=saving action=deep_sleep seconds=8").wait()
    assert job.code == 0, job.out + job.err
    asleep = re.search(r"rank 1 is saving a checkpoint since \d+ s, in uninterruptible sleep \(process (\d+) is in state D\).*\. The run waits for it: rank 1 waits", job.out)
    assert asleep and f"as root `cat /proc/{asleep[1]}/stack`" in job.out, job.out
    assert "moving again" in job.out and job.steps() == [1, 2, 3, 4, 5, 6]


def test_one_ranks_long_work_meets_no_deadline(start):
    """Operations fail after 5 s here. Rank 0 is held for longer where it loads, where it saves, and (as a stopped process) where it finishes."""
    short = [*TINY, "--ranks", 2, "parallel.timeout_s=5"]
    assert start(*short, "--max-steps", 2, name="loads", worker=None).wait().code == 0
    jobs = {
        "loads": start(*short, "--max-steps", 4, "--resume", "auto", name="loads", worker=None, LOCKSTEP_TEST_FAULT="rank=0 step=0 phase=loading action=stall seconds=8"),
        "saves": start(*short, "--max-steps", 4, "trainer.save_interval=2", name="saves", worker=None, LOCKSTEP_TEST_FAULT="rank=0 step=2 phase=saving action=stall seconds=8"),
        "ends": start(*short, "--max-steps", 4, "monitor.stall_seconds=2", name="ends", worker=None, LOCKSTEP_TEST_FAULT="rank=0 step=4 phase=finishing action=stop"),
    }
    pid = wait_until(lambda: worker_of(jobs["ends"], 0), what="the worker")
    wait_until(lambda: state_of(pid) == "T", what="a stopped worker")
    time.sleep(8)
    os.kill(pid, signal.SIGCONT)
    for name, job in jobs.items():
        assert job.wait(60).code == 0, name + job.out + job.err
        assert job.steps() == [1, 2, 3, 4], name
        assert (job.folder / "checkpoints/step-000004/manifest.json").exists(), name
    assert re.search(rf"rank 0 is stopped \(process {pid} is in state T\); rank 1 waits in meeting \d+, the end of the run", jobs["ends"].out), jobs["ends"].out


def test_ranks_at_odds_are_named(start):
    job = start(*TINY, "--ranks", 3, "--max-steps", 20, worker=None, LOCKSTEP_TEST_FAULT="rank=1 step=4 phase=forward action=mismatch").wait(60)
    assert job.code == 6, job.err
    assert "ranks disagree on operation" in job.err and "rank 1 entered all_reduce of 68 bytes (a test's odd one out)" in job.err
    job.assert_nothing_left()


def test_one_signal_saves_and_resume_goes_on(start):
    job = start(*TINY, "--ranks", 2, "--max-steps", 100000, "trainer.save_interval=0", worker=None)
    job.wait_for_step(5)
    job.send(signal.SIGINT)
    job.wait(30)
    assert job.code == 0, job.err
    assert "--resume auto" in job.out
    last = job.steps()[-1]
    assert (job.folder / f"checkpoints/step-{last:06}/manifest.json").exists()
    resumed = start(*TINY, "--ranks", 2, "--max-steps", last + 5, "--resume", "auto", worker=None).wait()
    assert resumed.code == 0 and resumed.steps() == list(range(1, last + 6))


def test_a_restart_goes_on_from_the_newest_checkpoint(start, tmp_path):
    """Two ranks, one of which is killed once, and the weights are those of a run that nobody touched."""
    flags = [*TINY, "--ranks", 2, "--max-steps", 12, "trainer.save_interval=5"]
    whole = start(*flags, name="whole", worker=None).wait()
    job = start(*flags, "--max-restarts", 2, worker=None, LOCKSTEP_TEST_FAULT=f"rank=1 step=8 phase=backward action=kill once={tmp_path}/struck").wait()
    assert job.code == 0, job.err
    assert job.err.count("died first") == 1 and "rank 1 of 2 died first, in step 8" in job.err
    assert f"restart 1 of 2 from the newest whole checkpoint, {job.folder}/checkpoints/step-000005" in job.out
    assert job.steps() == list(range(1, 13))
    for file in sorted((whole.folder / "checkpoints/step-000012").glob("*.safetensors")):
        assert file.read_bytes() == (job.folder / "checkpoints/step-000012" / file.name).read_bytes(), file.name


def test_restarts_without_a_checkpoint_begin_anew_until_they_run_out(start):
    """The fault strikes again in each restart, before the first save is whole."""
    job = start(*TINY, "--ranks", 2, "--max-steps", 12, "--max-restarts", 2, "trainer.save_interval=5", worker=None,
                LOCKSTEP_TEST_FAULT="rank=1 step=5 phase=saving action=kill").wait()
    assert job.code == 6 and job.err.count("died first") == 3
    assert "restart 2 of 2 from the beginning" in job.out


def test_generate_reads_what_was_trained(start, tmp_path):
    job = start(*TINY, "--ranks", 2, "--max-steps", 5, worker=None).wait()
    assert job.code == 0, job.err
    command = [BIN / "lockstep", "generate", "--run", job.folder, "--prompt", "Once", "--max-tokens", "8", "--seed", "3", "--device", "cpu"]
    texts = [subprocess.run(command, capture_output=True, text=True) for _ in range(2)]
    assert texts[0].returncode == 0, texts[0].stderr
    assert texts[0].stdout == texts[1].stdout and "Once" in texts[0].stdout
