"""A run that trains is asked for things by its control file: all ranks act after one step, and its numbers stay what they were."""
import json
import os
import re
import subprocess
import time

import pytest

from support.lockstep import LOCKSTEP, ROOT, lines_of, train, write_config

STEPS = 1_000_000  # far more than it comes to before it is stopped


def config_for(folder, **trainer):
    return write_config(folder, trainer={"lr_schedule": "constant", "max_steps": STEPS, "keep_best": False, **trainer},
                        data={"kind": "stories", "stories": 200}, model={"vocab_size": 1024}, monitor={"sample_tokens": 8})


def ask(*words, code=0):
    done = subprocess.run([LOCKSTEP, "ask", *map(str, words)], capture_output=True, text=True, timeout=120, cwd=ROOT)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout if code == 0 else done.stdout + done.stderr


def metrics_of(folder):
    return lines_of(folder / "metrics.jsonl")


def losses_of(folder):
    return {line["step"]: line["loss"] for line in metrics_of(folder) if "loss" in line}


def lease_of(folder):
    """The token of who trains it; None while nobody does."""
    try:
        return json.loads((folder / "lease").read_text().splitlines()[1])["token"]
    except (OSError, IndexError, ValueError):
        return None


@pytest.fixture
def start(tmp_path):
    started = []

    def begin(*flags):
        environment = {name: value for name, value in os.environ.items() if name not in ("RANK", "WORLD_SIZE")}
        process = subprocess.Popen([LOCKSTEP, "train", "-f", config_for(tmp_path), "--output", tmp_path, "--name", "run", "--device", "cpu",
                                    "--ranks", "2", "--threads", "1", *flags], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                   env=environment)
        started.append(process)
        return process

    yield begin
    for process in started:
        if process.poll() is None:
            process.kill()
            process.wait()


def wait_for_step(folder, step, seconds=120):
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if max(losses_of(folder), default=0) >= step:
            return
        time.sleep(0.05)
    raise AssertionError(f"step {step} did not come within {seconds} s")


def test_one_run_is_asked_for_everything(tmp_path, start):
    run = tmp_path / "run"
    process = start()
    wait_for_step(run, 3)

    # By its folder: a checkpoint, which is whole when the answer comes.
    saved = ask(run, "save")
    step, path = re.fullmatch(r"step (\d+)  checkpoint (\S+)\n", saved).groups()
    assert (run / "checkpoints" / f"step-{int(step):06}" / "manifest.json").exists() and path.endswith(f"step-{int(step):06}")

    # By its name, several at once, after one step.
    evaluated, sampled = (json.loads(line) for line in ask("run", "evaluate", "sample", "--output", tmp_path, "--json").splitlines())
    assert evaluated["step"] == sampled["step"] > int(step)
    told = [line for line in metrics_of(run) if "eval_loss" in line and "event" not in line]
    assert [(line["step"], line["eval_loss"]) for line in told] == [(evaluated["step"], evaluated["eval_loss"])]
    assert len(sampled["samples"]) == 1 and sampled["samples"][0]["text"].startswith(sampled["samples"][0]["prompt"])

    # A word in the file, as a script may leave it.
    (run / "control").write_text("save\n")
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and sum(line.get("event") == "checkpoint" for line in metrics_of(run)) < 2:
        time.sleep(0.05)
    assert not (run / "control").exists()

    stopped = ask(run, "stop")
    last = int(re.match(r"step (\d+)  stopped; everything is saved in \S+\n", stopped)[1])
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 0, out
    assert "stopped; everything is saved. Resume with" in out and f"step {step}  done as asked: save" in out
    wishes = [(line["wish"], line["done"]) for line in metrics_of(run) if line.get("event") == "wish"]
    assert wishes == [("save", True), ("evaluate", True), ("sample", True), ("save", True), ("stop", True)]

    # Nobody is there to answer any more.
    assert "is not being trained" in ask(run, "save", code=2)

    # It goes on from there, and no wish has changed a number: the same as a run that nobody asked.
    resumed = train(tmp_path, "run", config_for(tmp_path), "--ranks", "2", "--threads", "1", "--resume", "auto", f"trainer.max_steps={last + 4}")
    assert f"resumed from {run}/checkpoints/step-{last:06} at step {last}" in resumed.out
    alone = train(tmp_path, "alone", config_for(tmp_path), "--ranks", "2", "--threads", "1", f"trainer.max_steps={last + 4}")
    assert resumed.losses() == alone.losses()


def test_a_dead_runs_wish_does_not_stop_the_next_start(tmp_path, start):
    run = tmp_path / "run"
    process = start("--save-interval", "2")
    wait_for_step(run, 4)
    lease = lease_of(run)
    process.kill()
    process.wait()
    (run / "control").write_text(json.dumps({"id": "1", "wish": "stop", "lease": lease}) + "\n")
    assert "is not being trained any more" in ask(run, "stop", code=2)
    process = start("--resume", "auto")
    before = max(losses_of(run), default=0)
    deadline = time.monotonic() + 120
    while lease_of(run) in (lease, None) and time.monotonic() < deadline:
        time.sleep(0.01)
    answer = json.loads(ask(run, "evaluate", "--json"))  # asked while it still loads
    assert answer["done"] and answer["step"] > 0 and not (run / "control").exists()
    wait_for_step(run, before + 2)
    assert process.poll() is None
    ask(run, "stop")
    process.communicate(timeout=60)  # it tells of many steps, which somebody must read
    assert process.returncode == 0


@pytest.mark.parametrize("words, says", [
    (("nowhere", "save"), "there is no run nowhere here, nor under runs. Give a run's folder, or its name and --output."),
    (("nowhere", "sav"), "'sav' is nothing that a run can be asked for. Did you mean save? There are stop, save, evaluate and sample."),
    (("nowhere",), "WISH is required"),
])
def test_mistakes(words, says, tmp_path):
    assert says in ask(*words, code=2)


def test_what_cannot_be_done_is_said(tmp_path, start):
    """And a run that does not come to it in time: the wish is taken back."""
    run = tmp_path / "run"
    process = start("data.validation_fraction=0")
    wait_for_step(run, 2)
    assert "evaluate: not done: the run has no validation data" in ask(run, "evaluate", code=2)
    workers = [int(pid) for pid in subprocess.run(["pgrep", "-P", str(process.pid)], capture_output=True, text=True).stdout.split()]
    for worker in workers:
        os.kill(worker, 19)  # SIGSTOP
    assert "did not save within 2 s (--timeout)." in ask(run, "save", "--timeout", "2", code=6)
    assert not (run / "control").exists()
    for worker in workers:
        os.kill(worker, 18)
    wait_for_step(run, max(losses_of(run)) + 2)
    assert not any(line.get("wish") == "save" for line in metrics_of(run))
    ask(run, "stop")
    process.communicate(timeout=60)  # it tells of many steps, which somebody must read
    assert process.returncode == 0
