"""A run from Python: followed, asked, stopped, gone on with, and seen from another process."""
import json
import os
import pathlib
import subprocess
import sys
import textwrap
import threading

import pytest

import lockstep
from lockstep.follow import follow
from support.lockstep import ROOT, train, write_config

RANKS = {"device": "cpu", "threads": 1}


def long_run(folder, **settings):
    config = write_config(folder, data={"kind": "stories", "stories": 200}, model={"vocab_size": 1024}, monitor={"sample_tokens": 8},
                          trainer={"max_steps": 100000, "lr_schedule": "constant", "keep_best": False})
    return lockstep.train(config, output=folder, name="run", ranks=2, **RANKS, **settings)


def test_followed_asked_stopped_and_resumed(tmp_path):
    run = long_run(tmp_path)
    lines = iter(run)
    first = [next(lines) for _ in range(3)]
    assert [line["step"] for line in first] == [1, 2, 3] and all(line["loss"] > 0 for line in first)
    assert run.folder == tmp_path / "run" and run.plan["ranks"] == 2 and run.status == "running" and run.end is None
    seen = []
    watcher = threading.Thread(target=lambda: seen.extend(lockstep.attach(run.folder)))
    watcher.start()
    saved = run.save()
    assert saved.step > 3 and (saved.path / "manifest.json").exists()
    assert run.evaluate() > 0 and run.sample()[0]["text"]
    with pytest.raises(lockstep.LockstepError, match="nothing that a run can be asked for"):
        run.ask("dance")
    end = run.stop()
    assert end["status"] == run.status == "stopped" and run.stop() == end
    watcher.join(timeout=120)
    assert seen == list(run)  # both from the first step to the last
    last = run.checkpoints()[-1]
    assert saved in run.checkpoints() and last.step == max(line["step"] for line in seen if "loss" in line)

    again = run.resume(ranks=1, **{"trainer.max_steps": last.step + 2})
    assert [line["step"] for line in again if "loss" in line] == [last.step + 1, last.step + 2] and again.status == "complete"
    assert again.wait()["exit_code"] == 0
    # The file begins with what was kept; whoever looks now sees one past.
    assert [line["step"] for line in lockstep.attach(run.folder) if "loss" in line] == list(range(1, last.step + 3))
    texts = again.generate(["Once upon a time", "The sea"], max_tokens=4, temperature=0, device="cpu")
    assert len(texts) == 2 and texts[0].finish == "length"
    assert again.generate("The sea", max_tokens=4, temperature=0, device="cpu") == texts[1]
    assert again.generate(iter(["The sea"]), max_tokens=4, temperature=0, device="cpu") == texts[1:] and again.generate([]) == []
    third = lockstep.resume(run.folder, ranks=2, **{"trainer.max_steps": last.step + 3})  # by its folder alone
    assert [line["step"] for line in third if "loss" in line] == [last.step + 3]


def test_checkpoints_are_found_where_the_settings_put_them(tmp_path):
    config = write_config(tmp_path, trainer={"max_steps": 4, "save_interval": 2, "checkpoint_dir": str(tmp_path / "elsewhere")})
    run = lockstep.train(str(config), output=tmp_path, name="run", ranks=1, device="cpu")
    run.wait()
    found = [(one.step, one.path) for one in run.checkpoints()]
    assert found == [(step, tmp_path / "elsewhere" / f"step-{step:06}") for step in (2, 4)]
    with (run.folder / "metrics.jsonl").open("a") as metrics:
        metrics.write('{"event":"checkpoint","path":7}\n{"event":"checkpoint","pa')
    assert [(one.step, one.path) for one in lockstep.attach(run.folder).checkpoints()] == found


def test_a_dict_of_settings_equals_the_command(tmp_path):
    config = write_config(tmp_path, trainer={"max_steps": 4})
    by_command = train(tmp_path, "command", config, "--ranks", "2")
    import yaml
    run = lockstep.train(yaml.safe_load(config.read_text()), "--threads", "1", output=tmp_path, name="python", ranks=2, device="cpu")
    assert [line["loss"] for line in run if "loss" in line] == by_command.losses()


def test_mistakes_are_the_programs_words(tmp_path):
    for make, code, words in (
        (lambda: lockstep.train("nowhere.yaml").wait(), 2, "nowhere.yaml does not exist"),
        (lambda: lockstep.train(write_config(tmp_path), max_stepps=3).wait(), 2, "--max-steps"),
        (lambda: list(lockstep.train(write_config(tmp_path), gpus="7", device="cuda")), 2, "there is no GPU 7"),
        (lambda: lockstep.attach(tmp_path / "none"), 2, "no run folder"),
        (lambda: lockstep.generate("x", model=tmp_path / "none"), 2, "there is no such folder"),
    ):
        with pytest.raises(lockstep.LockstepError) as caught:
            make()
        assert caught.value.code == code and words in str(caught.value), str(caught.value)


def test_a_killed_rank_is_reported(tmp_path):
    run = long_run(tmp_path)
    next(iter(run))
    page = next(pathlib.Path("/proc").glob("[0-9]*/cmdline"), None)
    assert page is not None
    workers = [int(path.parent.name) for path in pathlib.Path("/proc").glob("[0-9]*/cmdline") if belongs_to(path, run)]
    os.kill(workers[0], 9)
    with pytest.raises(lockstep.RunFailed, match="SIGKILL") as caught:
        run.wait(300)
    assert run.status == "failed" and caught.value.folder == run.folder and "rank" in run.end


def belongs_to(cmdline, run):
    try:
        words = cmdline.read_bytes().split(b"\0")
    except OSError:
        return False
    return words[0].endswith(b"lockstep-worker") and any(str(run.folder).encode() in word for word in words)


def test_what_python_started_ends_with_it(tmp_path):
    """A script that ends while its run trains saves it."""
    config = write_config(tmp_path, trainer={"max_steps": 100000, "lr_schedule": "constant"})
    script = textwrap.dedent(f"""
        import lockstep
        run = lockstep.train({str(config)!r}, output={str(tmp_path)!r}, name="run", ranks=1, device="cpu", threads=1)
        print(next(iter(run))["step"])
    """)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=300, env={**os.environ, "PYTHONPATH": str(ROOT / "python")})
    assert done.returncode == 0 and done.stdout == "1\n", done.stderr
    assert lockstep.attach(tmp_path / "run").checkpoints() and not (tmp_path / "run" / "lease").exists()


def test_a_file_that_is_replaced_is_not_told_twice(tmp_path):
    """As a resumed run replaces it: its first lines are the old ones, up to where it goes on."""
    def write(*steps):
        (tmp_path / "new").write_text("".join(json.dumps({"step": step}) + "\n" for step in steps))
        (tmp_path / "new").rename(tmp_path / "metrics.jsonl")

    (tmp_path / "lease").write_text("1\n{}")  # an owner that nobody can ask
    write(1, 2, 3, 4)
    lines = follow(tmp_path)
    assert [next(lines)["step"] for _ in range(4)] == [1, 2, 3, 4]
    write(1, 2, 30)
    assert next(lines)["step"] == 30
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write('{"step": 31}\n{"st')
    assert next(lines)["step"] == 31
    (tmp_path / "lease").unlink()
    assert list(lines) == []


@pytest.mark.parametrize("lease", ["", "no counter", "7\nno json", "7\n[1, 2]", "7\n{}", '7\n{"boot": "another machine", "pid": 1}'])
def test_an_owner_that_says_nothing_more_is_not_waited_for_forever(tmp_path, monkeypatch, lease):
    """Damaged, or of a machine that is gone: without a change for so long nobody trains it. Lines that a power cut has damaged are passed over."""
    monkeypatch.setattr("lockstep.follow.EXPIRE_S", 0.5)
    (tmp_path / "lease").write_text(lease)
    (tmp_path / "metrics.jsonl").write_bytes(b'{"step": 1}\n\0\0\0\n{"st\n[3]\n{"step": 2}\n{"step": 3')
    assert [line["step"] for line in follow(tmp_path)] == [1, 2]
