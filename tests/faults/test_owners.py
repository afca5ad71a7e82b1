"""One run, one owner: two starts at once, owners that are gone, stopped or in another namespace, with real processes."""
import json
import os
import shutil
import signal
import tempfile
import time

import pytest

from fault_jobs import wait_until
from support import another_user
from test_worker import TINY

LEASE = {"LOCKSTEP_TEST_LEASE": "0.2 2"}


def lease_of(job):
    lines = (job.folder / "lease").read_text().splitlines()
    return int(lines[0]), json.loads(lines[1])


def test_a_second_start_is_refused_by_name_and_changes_nothing(start):
    job = start("--ranks", 2, FAKE_STEPS=100000)
    job.wait_for_step(3)
    config = (job.folder / "config.yaml").read_text()
    for arguments in ([], ["--resume", "auto"]):
        second = start("--ranks", 1, *arguments).wait(20)
        assert second.code == 2
        assert f"{job.folder} is in use by process {job.process.pid} on {os.uname().nodename}, since 20" in second.err, second.err
    job.wait_for_step(job.steps()[-1] + 3)
    assert (job.folder / "config.yaml").read_text() == config
    assert len([line for line in job.metrics() if line.get("event") == "started"]) == 1
    job.send(signal.SIGINT)
    assert job.wait(20).code == 0
    assert not list(job.folder.glob("lease*")), "given back"
    assert job.steps() == list(range(1, len(job.steps()) + 1))


def test_of_many_starts_at_once_one_trains(start):
    jobs = [start("--ranks", 1, FAKE_STEPS=40) for _ in range(4)]
    codes = sorted(job.wait(40).code for job in jobs)
    # Later ones may come when the first has ended: they find its checkpoints.
    assert codes == [0, 2, 2, 2], [job.err for job in jobs]
    assert all("in use by process" in job.err or "already holds a run with checkpoints" in job.err for job in jobs if job.code == 2)


def test_runs_without_a_name_that_start_together_get_their_own(start):
    jobs = [start("--ranks", 1, name=None, FAKE_STEPS=3) for _ in range(3)]
    assert [job.wait(40).code for job in jobs] == [0, 0, 0], [job.err for job in jobs]
    assert len({path.name for path in start.folder.iterdir()}) == 3


def test_an_owner_that_was_killed_is_followed_at_once(start):
    job = start("--ranks", 2, FAKE_STEPS=100000)
    job.wait_for_step(6)
    job.send(signal.SIGKILL)
    job.wait()
    assert (job.folder / "lease").exists()
    left = [job.folder / ".secret", job.folder / ".meeting-0123456789abcdef"]  # what launchers that were killed while they met leave
    for path in left:
        path.write_text("x")
    on = start("--ranks", 2, "--resume", "auto", FAKE_STEPS=8).wait(30)  # not after 60 s
    assert on.code == 0, on.err
    assert on.steps() == list(range(1, 9))
    assert not [path for path in left if path.exists()]


def test_a_run_that_was_taken_over_ends_itself(start):
    """Its launcher stands still for longer than the lease lasts, and another machine takes the folder."""
    job = start("--ranks", 2, FAKE_STEPS=100000, **LEASE)
    job.wait_for_step(3)
    counter, owner = lease_of(job)
    wait_until(lambda: lease_of(job)[0] > counter, what="a renewed lease")
    other = dict(owner, host="box2", pid=4242, token="of-the-other-machine")
    (job.folder / "lease.new").write_text(f"{7:020}\n{json.dumps(other)}\n")
    (job.folder / "lease.new").rename(job.folder / "lease")
    job.wait(20)
    assert job.code == 6
    assert f"the run folder {job.folder} was taken over by process 4242 on box2" in job.err and "writes nothing more" in job.err, job.err
    assert json.loads((job.folder / "lease").read_text().splitlines()[1])["token"] == "of-the-other-machine", "not given back for the other"
    job.assert_nothing_left()


def test_restarts_do_not_follow_a_lost_lease(start):
    job = start("--ranks", 1, "--max-restarts", 3, FAKE_STEPS=100000, **LEASE)
    job.wait_for_step(3)
    (job.folder / "lease.new").write_text(f"{7:020}\n{json.dumps(dict(lease_of(job)[1], token='another'))}\n")
    (job.folder / "lease.new").rename(job.folder / "lease")
    assert job.wait(20).code == 6 and "restart 1 of" not in job.out


def test_a_lease_from_elsewhere_is_waited_for_then_taken(start):
    folder = start.folder / "run"
    folder.mkdir()
    owner = {"host": "box2", "pid": 4242, "since": "2026-01-01T00:00:00Z", "boot": "another", "pid_namespace": "pid:[1]", "start_ticks": 5, "token": "gone"}
    (folder / "lease").write_text(f"{3:020}\n{json.dumps(owner)}\n")
    begun = time.monotonic()
    job = start("--ranks", 1, FAKE_STEPS=3, **LEASE).wait(30)
    assert job.code == 0, job.err
    assert time.monotonic() - begun > 2
    assert "was left by process 4242 on box2, since 2026-01-01T00:00:00Z; if it is not renewed within 2 s it is taken over" in job.err


@pytest.mark.skipif(os.getuid() != 0 or not shutil.which("unshare"), reason="namespaces need root and unshare")
def test_another_container_is_an_owner_too(start):
    """The same machine, but process numbers that mean nothing here: only the counter tells."""
    job = start("--ranks", 1, FAKE_STEPS=100000, prefix=["unshare", "--pid", "--fork", "--mount-proc", "--kill-child"], **LEASE)
    job.wait_for_step(3)
    second = start("--ranks", 1, "--resume", "auto", **LEASE).wait(20)
    assert second.code == 2 and "which renewed it just now" in second.err, second.err
    job.send(signal.SIGKILL)
    job.wait()
    on = start("--ranks", 1, "--resume", "auto", FAKE_STEPS=8, **LEASE).wait(30)
    assert on.code == 0, on.err


@pytest.mark.skipif(os.getuid() != 0 or not shutil.which("unshare"), reason="namespaces need root and unshare")
def test_a_run_is_the_same_by_every_path(start, tmp_path):
    """Its folder through a link, another mount and a process's own folder: its checkpoints elsewhere stay its own, and it has one owner."""
    real, mounted, link, saved = (tmp_path / name for name in ("real", "mounted", "link", "saved"))
    for folder in (real, mounted):
        folder.mkdir()
    link.symlink_to(real)
    here = ["unshare", "--mount", "sh", "-c", f'mount --bind {real} {mounted} && cd {real} && exec "$@"', "sh"]
    paths = [real, mounted, link, "/proc/self/cwd", f"{mounted}/../real"]
    for number, path in enumerate(paths):
        job = start("--ranks", 1, "--output", path, f"trainer.checkpoint_dir={saved}", *(["--resume", "auto"] if number else []), prefix=here, FAKE_STEPS=3 * number + 3).wait(30)
        assert job.code == 0, job.err
    assert sorted(path.name for path in (real / "run/ranks").glob("*.log")) == ["0.log"]
    own = start("--ranks", 1, "--output", real, f"trainer.checkpoint_dir={mounted}/run/checkpoints", "--resume", "auto", prefix=here, FAKE_STEPS=30).wait(30)
    assert own.code == 0, "checkpoints in the run folder, by its other path: " + own.err
    owner = start("--ranks", 1, "--output", real, name="two", prefix=here, FAKE_STEPS=100000)
    wait_until(lambda: (real / "two/lease").exists(), what="a lease")
    for path in paths:
        second = start("--ranks", 1, "--output", path, "--resume", "auto", name="two", prefix=here).wait(30)
        assert second.code == 2 and f"is in use by process {owner.process.pid}" in second.err, second.err
    owner.send(signal.SIGINT)
    assert owner.wait(30).code == 0, owner.err


@pytest.mark.skipif(another_user.IMPOSSIBLE, reason="another user needs root, unshare and setpriv")
def test_an_owner_whose_process_is_hidden_lives(start):
    """Where users do not see each other's processes, a run of another user is none that ended."""
    other_user = another_user.words_before("mount -t proc -o hidepid=2 proc /proc")
    with tempfile.TemporaryDirectory() as open_to_all:
        os.chmod(open_to_all, 0o777)
        shared = ["--output", open_to_all]
        job = start("--ranks", 1, *shared, FAKE_STEPS=100000, **LEASE)
        wait_until(lambda: os.path.exists(f"{open_to_all}/run/metrics.jsonl"), what="a run")
        os.chmod(f"{open_to_all}/run", 0o777)
        second = start("--ranks", 1, "--resume", "auto", *shared, prefix=other_user, **LEASE).wait(30)
        assert second.code == 2 and "which renewed it just now" in second.err, second.err
        job.send(signal.SIGINT)
        assert job.wait(20).code == 0, job.err


@pytest.mark.skipif(os.getuid() != 0 or not shutil.which("unshare"), reason="namespaces need root and unshare")
def test_an_owner_that_comes_back_when_the_next_one_has_ended_writes_nothing(start):
    """It stands still, as a machine that sleeps does, while another takes the run, trains it to its end and gives it back."""
    flags = [*TINY, "--ranks", 1, "--save-interval", 2, "trainer.max_checkpoints=100"]
    away = start(*flags, "--max-steps", 1000000, worker=None, prefix=["unshare", "--pid", "--fork", "--mount-proc", "--kill-child"], **LEASE)
    away.wait_for_step(3)
    asleep = away.workers()
    for pid in asleep:
        os.kill(pid, signal.SIGSTOP)
    on = start(*flags, "--resume", "auto", "--max-steps", 1 + away.steps()[-1], worker=None, **LEASE).wait()
    assert on.code == 0 and not (on.folder / "lease").exists(), on.err

    def saved():
        written = [on.folder / name for name in ("config.yaml", "metrics.jsonl", "end.json", "summary.json")]
        return {path: path.read_bytes() for path in [*written, *(on.folder / "checkpoints").rglob("*")] if path.is_file()}

    left = saved()
    for pid in asleep:
        os.kill(pid, signal.SIGCONT)
    away.wait()
    assert away.code == 6 and "was taken over by a process that has ended since" in away.err, away.err
    assert saved() == left
