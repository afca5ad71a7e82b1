"""Several machines: they meet, prove that they are of one run, train as one, and end as one."""
import json
import re
import shlex
import signal
import socket
import struct
import subprocess
import sys
import time

import pytest
import yaml
from network import BIN, ROOT, SECRET

TINY = {
    "model": {"name": "tiny", "hidden_size": 32, "num_layers": 2, "num_heads": 4, "kv_heads": 2, "intermediate_size": 64, "vocab_size": 67, "max_seq_len": 16},
    "data": {"kind": "random", "random_tokens": 3200, "validation_fraction": 0.1},
    "trainer": {"learning_rate": 0.003, "max_steps": 6, "log_interval": 1, "save_interval": 3, "global_batch_size": 12},
    "monitor": {"sample_tokens": 0},
}


@pytest.fixture
def tiny(tmp_path):
    path = tmp_path / "tiny.yaml"
    path.write_text(yaml.safe_dump(TINY))
    return path


def losses(folder):
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return {line["step"]: line["loss"] for line in lines if "loss" in line}


def all_end(runs, code, *words, seconds=40):
    """Every machine ends with this code and has said all of these words."""
    for run in runs:
        assert run.wait(seconds).code == code, "\n".join(one.text for one in runs)
    for run in runs:
        for word in words:
            assert word in run.out + run.err, f"{word!r} was not said\n" + "\n".join(one.text for one in runs)


def test_two_machines_train_as_one_and_nobody_else_can_reach_the_store(boxes, tiny, tmp_path):
    """2 ranks here and 1 there, started by the line that machine 0 prints; the losses of 3 ranks on one machine."""
    a, b = boxes(2)
    first = a.train("--ranks", 2, "--threads", 1, "trainer.max_steps=40", output=tmp_path, secret=None, fake=False, config=tiny)
    first.wait_for("start the other machine with")
    line = re.search(r"^  (LOCKSTEP_SECRET=\S+) (.*)$", first.out, re.M)
    assert line and line[2].endswith("--master-addr box0 --node-rank 1"), first.out
    secret, command = line[1].split("=")[1], shlex.split(line[2])
    second = b.start(*[word if word != "2" or command[i - 1] != "--ranks" else "1" for i, word in enumerate(command)], LOCKSTEP_SECRET=secret)
    first.wait_for("step  1/40")
    outside = {listener for listener in a.listeners() if listener.startswith("outside")}
    inside = {listener for listener in a.listeners() if listener.startswith("loopback")}
    assert inside, "the store listens on loopback"
    assert "outside:29500" in outside, "the meeting is where it should be"
    all_end([first, second], 0, "finished")
    assert "on 3 ranks" in first.out
    assert secret not in (tmp_path / "run/config.yaml").read_text() + "".join(p.read_text() for p in (tmp_path / "run/ranks").glob("*.log"))
    assert sorted(path.name for path in (tmp_path / "run/ranks").glob("*.log")) == ["0.log", "1.log", "2.log"]
    alone = subprocess.run([BIN / "lockstep", "train", "-f", tiny, "--device", "cpu", "--output", tmp_path, "--name", "alone", "--ranks", "3", "--threads", "1", "trainer.max_steps=40"],
                           cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert alone.returncode == 0, alone.stderr
    together, single = losses(tmp_path / "run"), losses(tmp_path / "alone")
    assert together.keys() == single.keys()
    assert all(abs(together[step] - single[step]) < 1e-5 for step in single)


def test_shards_of_two_machines_are_saved_as_those_of_one(boxes, tiny, tmp_path):
    """No page of a file is written by two machines: what they have of one meets at rank 0. The files are the same."""
    cut = ["--threads", 1, "parallel.shard=full"]
    all_end([machine.train(*cut, "--ranks", ranks, output=tmp_path, fake=False, config=tiny) for machine, ranks in zip(boxes(2), (2, 1))], 0, "finished")
    alone = subprocess.run([BIN / "lockstep", "train", "-f", tiny, "--device", "cpu", "--output", tmp_path, "--name", "alone", *map(str, cut), "--ranks", "3"],
                           cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert alone.returncode == 0, alone.stderr
    said = "of pages that several ranks have some of were written by this one"
    logs = {name: (tmp_path / name / "ranks/0.log").read_text() for name in ("run", "alone")}
    assert "step 3: " in logs["run"] and said in logs["run"] and said not in logs["alone"]
    for step in ("step-000003", "step-000006"):
        together, single = ({path.name: path.read_bytes() for path in (tmp_path / name / "checkpoints" / step).iterdir()} for name in ("run", "alone"))
        assert together.keys() == single.keys() and len(single) == 5
        assert [name for name in single if name.endswith(".safetensors") and together[name] != single[name]] == []


def test_what_differs_is_told_on_all_three_machines(boxes, tiny, tmp_path):
    a, b, c = boxes(3)
    shared = dict(nodes=3, output=tmp_path, config=tiny)
    runs = [a.train(**shared), b.train("--lr", "0.5", "--seed", "9", **shared), c.train("--ranks", 1, "--threads", 3, **shared)]
    all_end(runs, 2, "trainer.learning_rate is 0.003 on machine 0 (box0) and 0.5 on machine 1 (box1)", "trainer.seed is 1234 on machine 0 (box0) and 9 on machine 1 (box1)", seconds=15)
    assert not any("machine 2 (box2)" in run.err for run in runs), "ranks and threads may differ"

    tokens = [tmp_path / "a.bin", tmp_path / "b.bin"]
    for number, path in enumerate(tokens):
        path.write_bytes(struct.pack("<3200H", *[(i * (number + 1)) % 67 for i in range(3200)]))
    data = ["data.kind=tokens", "data.token_type=u16"]
    runs = [m.train(*data, "-d", tokens[m is c], "--name", f"run{m.number % 2}", **shared) for m in (a, b, c)]
    all_end(runs, 2, "the run's name is run0 on machine 0 (box0) and run1 on machine 1 (box1)", "data.path", "on machine 2 (box2)", "6400 bytes, hash", seconds=15)


def test_an_output_that_is_not_shared_is_told_at_the_start(boxes, tiny, tmp_path):
    a, b = boxes(2)
    (tmp_path / "runs").mkdir()
    same_path = [a.train(output=tmp_path / "runs", config=tiny), b.train(output=tmp_path / "runs", config=tiny, own_folder=tmp_path / "runs")]
    all_end(same_path, 3, "--output is not one folder that all share", f"{tmp_path}/runs/run on machine 0 (box0)", f"{tmp_path}/runs/run on machine 1 (box1)", seconds=20)
    other_path = [a.train(output=tmp_path / "x", config=tiny), b.train(output=tmp_path / "y", config=tiny)]
    all_end(other_path, 3, f"{tmp_path}/x/run on machine 0 (box0)", f"{tmp_path}/y/run on machine 1 (box1)", seconds=20)


def test_who_is_missing_is_told_and_nobody_waits_twice(boxes, tiny, tmp_path):
    a, b, c = boxes(3)
    nowhere = b.train("--master-addr", "no-such-host.invalid", nodes=3, output=tmp_path, config=tiny)
    assert nowhere.wait(5).code == 3 and "'no-such-host.invalid' (--master-addr) does not resolve" in nowhere.err, nowhere.text
    without = b.train(nodes=3, output=tmp_path, config=tiny, secret=None)
    assert without.wait(5).code == 2 and "Machine 0 has printed the command" in without.err, without.text
    # From here on 4 s run, and all have to come before they are over: no one is waited for in between.
    begun = time.monotonic()
    runs = [m.train("parallel.timeout_s=4", nodes=3, output=tmp_path, config=tiny) for m in (a, b)]
    twin = b.train("parallel.timeout_s=4", nodes=3, output=tmp_path, config=tiny)
    of_two = c.train(node=1, nodes=2, output=tmp_path, config=tiny)
    assert of_two.wait(10).code == 2 and "this machine is number 1 of 2, but machine 0 (box0) waits for 3" in of_two.err, of_two.text
    all_end(runs[:1], 3, "10.77.0.3 was turned away and told: this machine is number 1 of 2", "10.77.0.2 was turned away and told: machine 1 (box1) is here already",
            "2 of 3 machines are here; missing node rank 2.", "after 4 s (parallel.timeout_s) 2 of 3 machines are here; missing node rank 2", seconds=20)
    one, other = sorted([runs[1].wait(20), twin.wait(20)], key=lambda run: run.code)
    assert (one.code, other.code) == (2, 3), one.text + other.text
    assert "machine 1 (box1) is here already, from 10.77.0.2" in one.err and "missing node rank 2" in other.err
    assert time.monotonic() - begun < 15


def test_strangers_take_no_place_and_stop_nothing(boxes, tiny, tmp_path):
    """Garbage, silence, a wrong secret and another job, all at the port while two machines meet there."""
    a, b, c = boxes(3)
    first = a.train(output=tmp_path, config=tiny, FAKE_STEPS=5)
    first.wait_for("1 of 2 machines is here; missing node rank 1.")
    noise = c.start(sys.executable, "-c", f"""
import socket, time
held = [socket.create_connection(("10.77.0.1", 29500)) for _ in range(150)]
for one in held[:50]: one.sendall(b"GET / HTTP/1.0\\r\\n\\r\\n")
for one in held[50:80]: one.sendall(b"lockstep machines 1\\n" + bytes(64))
print(held[100].recv(100)[:20], flush=True)
time.sleep(30)
""")
    noise.wait_for("lockstep machines 1")
    other_job = c.train("--name", "other", node=1, output=tmp_path / "other", config=tiny, secret="another job's secret, as long")
    assert other_job.wait(10).code == 2 and "does not know this machine's LOCKSTEP_SECRET" in other_job.err, other_job.text
    second = b.train(output=tmp_path, config=tiny, FAKE_STEPS=5)
    all_end([first, second], 0, "finished")
    assert "10.77.0.3 came without this run's secret and was turned away." in first.out
    noise.send(signal.SIGKILL)


@pytest.mark.parametrize("where", [0, 1])
def test_one_restart_survives_the_death_of_a_rank_on_either_machine(boxes, tiny, tmp_path, where):
    a, b = boxes(2)
    fault = dict(FAKE_STEPS=12, FAKE_FAULT=f"rank={where} step=7 action=kill once=1")
    runs = [m.train("--ranks", 1, "--max-restarts", 1, output=tmp_path, config=tiny, **fault) for m in (a, b)]
    all_end(runs, 0, f"rank {where} of 2", "SIGKILL", "restart 1 of 1 from the newest whole checkpoint", "finished")
    for run, other in zip(runs, (1, 0)):
        assert (f"on machine {where} (box{where}), died first" in run.err) == (where == 1), run.text
    steps = [json.loads(line)["step"] for line in (tmp_path / "run/metrics.jsonl").read_text().splitlines() if "loss" in line]
    assert steps[-1] == 12 and 6 in steps


def test_a_death_without_restarts_ends_all_machines_with_one_report(boxes, tiny, tmp_path):
    machines = boxes(3)
    fault = dict(FAKE_STEPS=1000, FAKE_FAULT="rank=4 step=3 action=segv")
    runs = [m.train("--ranks", 2, nodes=3, output=tmp_path, config=tiny, **fault) for m in machines]
    all_end(runs, 6, "rank 4 of 6, on machine 2 (box2), died first, in step 3", "SIGSEGV", seconds=15)


@pytest.mark.parametrize("where", [0, 1])
def test_a_machine_that_dies_is_named_and_may_come_back(boxes, tiny, tmp_path, where):
    machines = boxes(2)
    shared = dict(output=tmp_path, config=tiny, FAKE_STEPS=100)
    runs = [m.train("--ranks", 1, "--max-restarts", 1, **shared) for m in machines]
    runs[0].wait_for("step   6/100")
    dead, alive = runs[where], runs[1 - where]
    dead.send(signal.SIGKILL)
    dead.wait()
    alive.wait_for(f"machine {where}", 10)
    alive.wait_for("is gone", 10)
    back = machines[where].train("--ranks", 1, "--max-restarts", 1, "--resume", "auto", **shared)
    all_end([back], 0, "finished")
    all_end([alive], 0, "restart 1 of 1 from the newest whole checkpoint", "finished")


def test_a_pulled_plug_ends_both_sides(boxes, tiny, tmp_path):
    a, b = boxes(2)
    runs = [m.train("--ranks", 1, "parallel.timeout_s=5", output=tmp_path, config=tiny, FAKE_STEPS=100000) for m in (a, b)]
    runs[0].wait_for("step ")
    b.pull_the_plug()
    all_end(runs[:1], 6, "machine 1 (box1) is gone: nothing was heard for 5 s", seconds=15)
    all_end(runs[1:], 6, "machine 0 (box0:29500) is gone: nothing was heard for 5 s", seconds=15)


def test_a_stop_on_one_machine_is_a_stop_on_all(boxes, tiny, tmp_path):
    a, b = boxes(2)
    runs = [m.train("--ranks", 1, output=tmp_path, config=tiny, FAKE_STEPS=100000) for m in (a, b)]
    runs[0].wait_for("step      3/")
    runs[1].send(signal.SIGTERM)
    all_end(runs, 0, "stopped; everything is saved. Resume with", "--resume auto", seconds=15)
    assert "another machine was asked to stop" in runs[0].out


def test_a_run_is_asked_from_any_of_its_machines(boxes, tiny, tmp_path):
    """The wish lies in the shared folder; the answer holds for the ranks of both."""
    a, b = boxes(2)
    runs = [m.train("--ranks", 1, "--threads", 1, "trainer.max_steps=100000", "trainer.save_interval=0", output=tmp_path, fake=False, config=tiny) for m in (a, b)]
    runs[0].wait_for("step      3/100000")
    saved = b.start(BIN / "lockstep", "ask", tmp_path / "run", "save").wait(30)
    step = re.search(r"^step (\d+)  checkpoint ", saved.out, re.M)
    assert saved.code == 0 and step, saved.text
    assert (tmp_path / f"run/checkpoints/step-{int(step[1]):06}/manifest.json").exists()
    stopped = a.start(BIN / "lockstep", "ask", tmp_path / "run", "stop").wait(30)
    assert stopped.code == 0, stopped.text
    all_end(runs, 0, "stopped")


def test_stalls_are_judged_over_all_machines(boxes, tiny, tmp_path):
    a, b = boxes(2)
    short = ["--ranks", 1, "monitor.stall_seconds=1", "monitor.stall_abort_seconds=2"]
    long_save = dict(FAKE_STEPS=6, FAKE_FAULT="rank=0 step=5 phase=saving action=slow ms=4000")
    runs = [m.train(*short, output=tmp_path, config=tiny, **long_save) for m in (a, b)]
    all_end(runs, 0, "finished")
    stuck = dict(FAKE_STEPS=100, FAKE_FAULT="rank=1 step=4 phase=forward action=stall")
    runs = [m.train(*short, "--name", "stuck", output=tmp_path, config=tiny, **stuck) for m in (a, b)]
    all_end(runs, 6, "rank 1 is", "rank 0 waits in all_reduce", "The others wait for rank 1.", seconds=15)


def test_a_slow_and_lossy_link(boxes, tiny, tmp_path):
    a, b = boxes(2)
    for machine in (a, b):
        machine.slow()
    runs = [m.train("--ranks", 1, "--threads", 1, output=tmp_path, fake=False, config=tiny) for m in (a, b)]
    all_end(runs, 0, "finished", seconds=60)
    assert sorted(losses(tmp_path / "run")) == [1, 2, 3, 4, 5, 6]


def test_ranks_started_one_by_one_meet_in_the_same_way(boxes, tiny, tmp_path):
    """RANK and WORLD_SIZE by hand on two machines: the secret lies in the shared folder; another job on the port is refused."""
    a, b = boxes(2)

    def rank(machine, number, *args, **variables):
        return machine.start(BIN / "lockstep", "train", "-f", tiny, "--device", "cpu", "--output", tmp_path, *args, RANK=number, LOCAL_RANK=0, WORLD_SIZE=2, LOCAL_WORLD_SIZE=1,
                             MASTER_ADDR="box0", MASTER_PORT=29700, **variables)

    runs = [rank(a, 0, "--name", "hand", "--threads", 1), rank(b, 1, "--name", "hand", "--threads", 1)]
    all_end(runs, 0)
    assert sorted(losses(tmp_path / "hand")) == [1, 2, 3, 4, 5, 6] and not (tmp_path / "hand/.secret").exists()
    runs = [rank(a, 0, "--name", "one", LOCKSTEP_SECRET=SECRET), rank(b, 1, "--name", "two", LOCKSTEP_SECRET=SECRET)]
    all_end(runs, 2, "the run's name is one on rank 0 (box0) and two on rank 1 (box1)", seconds=15)


@pytest.mark.parametrize("launcher", ["srun", "by hand"])
def test_ranks_of_one_machine_meet_by_its_name(boxes, tiny, tmp_path, launcher):
    """Nothing says how many ranks a machine has, or only in srun's list: all of them come to the same idea of where the secret is."""
    (a,) = boxes(1)

    def rank(number):
        srun = {"SLURM_PROCID": number, "SLURM_NTASKS": 2, "SLURM_LOCALID": number, "SLURM_NODEID": 0, "SLURM_JOB_ID": 7, "SLURM_STEP_ID": 0,
                "SLURM_STEP_NODELIST": "box0", "SLURM_STEP_TASKS_PER_NODE": 2}
        by_hand = {"RANK": number, "LOCAL_RANK": number, "WORLD_SIZE": 2, "MASTER_ADDR": "box0", "MASTER_PORT": 29700}
        return a.start(BIN / "lockstep", "train", "-f", tiny, "--device", "cpu", "--output", tmp_path, "--name", "run", "--threads", 1, "parallel.timeout_s=60",
                       **(srun if launcher == "srun" else by_hand))

    all_end([rank(0), rank(1)], 0, seconds=90)
    assert sorted(losses(tmp_path / "run")) == [1, 2, 3, 4, 5, 6]
