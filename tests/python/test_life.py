"""How runs and conversations end: interrupted, forgotten, forked away, two at once; and what errors carry."""
import gc
import os
import pathlib
import signal
import subprocess
import sys
import textwrap
import threading
import time

import pytest

import lockstep
from support.chat_model import write_model
from support.lockstep import ROOT, write_config

LAUNCH = {"device": "cpu", "ranks": 1, "threads": 1}


def script(text, **values):
    """Runs in a Python of its own, beside the package of this checkout."""
    words = textwrap.dedent(text)
    for name, value in values.items():
        words = words.replace(name, repr(str(value)))
    return subprocess.Popen([sys.executable, "-c", words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                            env={**os.environ, "PYTHONPATH": str(ROOT / "python")})


def endless(tmp_path):
    return write_config(tmp_path, trainer={"max_steps": 100000, "lr_schedule": "constant"})


def is_saved_and_over(run):
    return bool(lockstep.attach(run).checkpoints()) and not (run / "lease").exists()


def wait_until(holds, seconds=120):
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.02)


def test_ctrl_c_saves_the_run_and_is_raised(tmp_path):
    process = script("""
        import lockstep
        trainer = lockstep.Trainer(CONFIG, args={"output_dir": OUTPUT}, launch={"device": "cpu", "ranks": 1, "threads": 1}, progress=False,
                                   callbacks=[lambda line: print(line["step"], flush=True)])
        try:
            trainer.train()
        except KeyboardInterrupt:
            print("interrupted", trainer.run.status, flush=True)
            raise
    """, CONFIG=endless(tmp_path), OUTPUT=tmp_path / "run")
    assert process.stdout.readline() == "1\n", process.stderr.read()
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=200)
    assert "interrupted stopped" in out and err.rstrip().endswith("KeyboardInterrupt") and process.returncode in (130, -signal.SIGINT), out + err
    assert is_saved_and_over(tmp_path / "run")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_run_is_saved_and_ended_with_a_script_that_is_killed(tmp_path, number):
    process = script("""
        import multiprocessing, time, lockstep
        run = lockstep.train(CONFIG, output=OUTPUT, name="run", device="cpu", ranks=1, threads=1)
        multiprocessing.get_context("fork").Process(target=time.sleep, args=(300,), daemon=False).start()  # which holds none of its runs
        for line in run:
            print(line["step"], flush=True)
    """, CONFIG=endless(tmp_path), OUTPUT=tmp_path)
    assert process.stdout.readline() == "1\n", process.stderr.read()
    children = [int(pid) for pid in pathlib.Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()]
    try:
        process.send_signal(number)
        process.wait()
        wait_until(lambda: is_saved_and_over(tmp_path / "run"))
        assert lockstep.attach(tmp_path / "run").status == "stopped"
    finally:
        for pid in children:
            if pathlib.Path(f"/proc/{pid}").exists():
                os.kill(pid, signal.SIGKILL)


def test_a_detached_run_trains_on(tmp_path):
    process = script("""
        import lockstep
        run = lockstep.train(CONFIG, output=OUTPUT, name="run", device="cpu", ranks=1, threads=1, detach=True)
        next(iter(run))
    """, CONFIG=endless(tmp_path), OUTPUT=tmp_path)
    assert process.wait(200) == 0, process.stderr.read()
    run = lockstep.attach(tmp_path / "run")
    reached = sum(1 for line in (tmp_path / "run/metrics.jsonl").read_text().splitlines() if "loss" in line)
    wait_until(lambda: sum(1 for line in (tmp_path / "run/metrics.jsonl").read_text().splitlines() if "loss" in line) > reached + 2)
    assert run.status == "running" and run.stop()["status"] == "stopped"


def test_an_exception_of_a_callback_is_the_one_that_is_raised(tmp_path):
    def breaks(line):
        raise ValueError("mine")

    trainer = lockstep.Trainer(str(endless(tmp_path)), args={"output_dir": tmp_path / "run"}, launch=LAUNCH, progress=False, callbacks=[breaks])
    with pytest.raises(ValueError, match="mine"):
        trainer.train()
    assert trainer.run.status == "stopped" and is_saved_and_over(tmp_path / "run")


def test_a_forked_process_leaves_its_parents_run_alone(tmp_path):
    run = lockstep.train(str(endless(tmp_path)), output=str(tmp_path), name="run", **LAUNCH)
    lines = iter(run)
    next(lines)
    child = os.fork()
    if child == 0:
        try:
            import atexit
            atexit._run_exitfuncs()  # as a script that ends does
        finally:
            os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    reached = next(lines)["step"]
    wait_until(lambda: run._events[-1].get("step", 0) > reached + 2)
    assert run.status == "running"
    assert run.stop()["status"] == "stopped"


def test_a_run_that_nobody_holds_goes_on_and_two_trainers_train_at_once(tmp_path):
    config = write_config(tmp_path, trainer={"max_steps": 4})
    lockstep.train(str(config), output=str(tmp_path), name="forgotten", **LAUNCH)
    gc.collect()
    trainers = [lockstep.Trainer(str(config), args={"output_dir": tmp_path / name}, launch=LAUNCH, progress=False) for name in ("a", "b")]
    threads = [threading.Thread(target=trainer.train) for trainer in trainers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(200)
    first, second = ([line["loss"] for line in trainer.state.log_history if "loss" in line] for trainer in trainers)
    assert len(first) == 4 and first == second
    wait_until(lambda: (tmp_path / "forgotten/end.json").exists())
    assert [line["loss"] for line in lockstep.attach(tmp_path / "forgotten") if "loss" in line] == first


def test_a_conversation_that_nobody_holds_is_over(tmp_path):
    chat = lockstep.Chat(model=write_model(tmp_path / "model"), max_tokens=3, device="cpu")
    pid = chat._process.pid
    answer = chat.stream("say one")
    next(answer, None)
    del chat, answer
    gc.collect()
    wait_until(lambda: not pathlib.Path(f"/proc/{pid}").exists())
    with lockstep.Chat(model=tmp_path / "model", max_tokens=3, device="cpu") as chat:
        pass
    chat.close()  # twice is as good as once
    with pytest.raises(lockstep.LockstepError, match="closed"):
        chat.say("anybody there?")


def test_a_generator_is_read_once(tmp_path):
    trainer = lockstep.Trainer("models/nano.yaml", args={"output_dir": tmp_path / "run"}, train_dataset=({"text": word} for word in ("one", "two")))
    assert trainer.command() == trainer.command()


def test_errors_carry_their_code_and_the_fix(tmp_path):
    with pytest.raises(lockstep.LockstepError) as caught:
        lockstep.generate("x", model=tmp_path / "none", device="cpu")
    assert (caught.value.explained, caught.value.code) == ("LS-501", 2) and "safetensors" in caught.value.fix
    run = lockstep.train(str(write_config(tmp_path)), output=str(tmp_path), name="run", device="cpu", ranks=2, threads=1,
                         env={"LOCKSTEP_TEST_FAULT": "rank=1 step=3 phase=forward action=kill"})
    with pytest.raises(lockstep.RunFailed) as caught:
        run.wait()
    assert caught.value.explained == "LS-605" and "dmesg" in caught.value.fix and caught.value.folder == tmp_path / "run"
    with pytest.raises(lockstep.LockstepError) as caught:
        lockstep.attach(tmp_path / "nothing")
    assert caught.value.explained is None and caught.value.fix is None
