"""What people type beside plain training: generate, dry run, headless, foreign launchers, several spellings of a setting."""
import json
import os
import subprocess
import sys

import pytest

from support.lockstep import BUILD, LOCKSTEP, ROOT, train, write_config
from support.network import free_port


def call(*args, env=None, timeout=120):
    return subprocess.run([str(LOCKSTEP), *args], capture_output=True, text=True, cwd=ROOT, timeout=timeout, env={**os.environ, **(env or {})})


@pytest.fixture(scope="module")
def story_run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("stories")
    config = write_config(folder, model={"vocab_size": 1024}, data={"kind": "stories", "stories": 200}, trainer={"max_steps": 3})
    return train(folder, "run", config, "--ranks", "2")


def test_generate_continues_the_prompt(story_run):
    done = call("generate", "--run", str(story_run.folder), "--prompt", "Once upon a time", "--max-tokens", "12", "--temperature", "0")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("Once upon a time")
    again = call("generate", "--run", str(story_run.folder), "--prompt", "Once upon a time", "--max-tokens", "12", "--temperature", "0")
    assert again.stdout == done.stdout


def test_generate_from_nothing_says_what_is_missing(tmp_path):
    done = call("generate", "--run", str(tmp_path))
    assert done.returncode == 2 and "not a run folder" in done.stderr


def test_summary_has_what_the_design_names(story_run):
    summary = json.loads((story_run.folder / "summary.json").read_text())
    for key in ("device", "ranks", "step_seconds", "tokens_per_second", "tokens_per_second_per_gpu", "raw_step_seconds", "raw_losses", "evaluations"):
        assert key in summary
    assert len(summary["raw_losses"]) == 3


def test_headless_prints_json_lines_alone(tmp_path):
    result = train(tmp_path, "run", write_config(tmp_path, trainer={"max_steps": 3}), "--ranks", "2", "--headless")
    lines = [json.loads(line) for line in result.out.splitlines()]
    assert [line["step"] for line in lines if "loss" in line] == [1, 2, 3]


def test_nothing_but_train_says_what_it_trains(tmp_path):
    """`lockstep train` alone begins a quarter of an hour of work: it says of what, and what to type instead."""
    def shown(*args):
        done = subprocess.run([str(LOCKSTEP), "train", "--device", "cpu", "--dry-run", *args], capture_output=True, text=True, cwd=tmp_path, timeout=60)
        assert done.returncode == 0, done.stderr
        return done.stdout
    alone = shown()
    assert "random weights" in alone and "20000 built-in stories" in alone
    assert "no -f, --model or --data: a small new model learns the built-in stories" in alone and "lockstep train -f models/nano.yaml" in alone
    assert "no -f" not in shown("-f", str(ROOT / "models/nano.yaml")) and "no -f" not in shown("data.kind=random")
    assert "1.0M random tokens" in shown("data.kind=random")


def test_dry_run_starts_nothing(tmp_path):
    result = train(tmp_path, "run", write_config(tmp_path), "--ranks", "3", "--dry-run")
    assert not result.folder.exists()
    assert "batch 4 x accumulation 1 x 3 ranks" in result.out


def planned(tmp_path, *args, **sections):
    sections = {**sections, "trainer": {"max_steps": 0, **sections.get("trainer", {})}}
    done = train(tmp_path, "plan", write_config(tmp_path, "plan.yaml", **sections), "--ranks", "1", "--dry-run", "--headless", *args, check=False)
    return done.code, json.loads(done.out)["steps"] if done.code == 0 else done.err


def test_a_dry_run_counts_the_steps_of_any_data(tmp_path):
    """Windows of 16 tokens, a tenth held back, 12 a step; the built-in stories are counted by making them, as the ranks do."""
    stories = {"data": {"kind": "stories", "stories": 60, "validation_fraction": 0.1}, "model": {"vocab_size": 1024}}
    code, steps = planned(tmp_path, **stories)
    assert code == 0
    run = train(tmp_path, "run", write_config(tmp_path, trainer={"max_steps": 0}, **stories), "--ranks", "1")
    assert max(run.steps()) == steps > 10
    assert planned(tmp_path, "--seed", "5", **stories)[1] != steps or planned(tmp_path, "--seed", "6", **stories)[1] != steps, "other stories"
    (tmp_path / "tokens.bin").write_bytes(bytes(4 * 2000))
    (tmp_path / "words.txt").write_bytes(b"a" * 2000)
    for path in ("tokens.bin", "words.txt"):  # 124 windows, 12 held back
        assert planned(tmp_path, data={"kind": "auto", "path": str(tmp_path / path)}, model={"vocab_size": 300}) == (0, 10)
    assert planned(tmp_path, data={"kind": "random", "random_tokens": 2000}) == (0, 10)


@pytest.mark.parametrize("steps", [0, 7])
@pytest.mark.parametrize("key", ["path", "validation_path"])
@pytest.mark.parametrize("name", ["none.bin", "none.txt"])
def test_a_dry_run_misses_data_that_is_not_there(tmp_path, steps, key, name):
    (tmp_path / "tokens.bin").write_bytes(bytes(4 * 2000))
    data = {"kind": "auto", "path": str(tmp_path / "tokens.bin"), key: str(tmp_path / name)}
    code, said = planned(tmp_path, data=data, trainer={"max_steps": steps})
    assert code == 4 and f"{name} does not exist" in said, said


def test_resolved_config_starts_the_same_run(tmp_path):
    first = train(tmp_path, "first", write_config(tmp_path, trainer={"max_steps": 4}), "--ranks", "2")
    again = train(tmp_path, "again", first.folder / "config.yaml")
    assert again.losses() == first.losses()


def test_torchrun_starts_the_ranks(tmp_path):
    config = write_config(tmp_path, trainer={"max_steps": 4})
    plain = train(tmp_path, "plain", config, "--ranks", "2")
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--no-python", "--nproc-per-node=2", "--master-port=0", "--rdzv-backend=c10d",
                "--rdzv-endpoint=localhost:0", str(LOCKSTEP), "train", "-f", str(config), "--device", "cpu", "--output", str(tmp_path), "--name", "torchrun"]
    done = subprocess.run(torchrun, capture_output=True, text=True, cwd=ROOT, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    lines = [json.loads(line) for line in (tmp_path / "torchrun/metrics.jsonl").read_text().splitlines()]
    assert [line["loss"] for line in lines if "loss" in line] == plain.losses()


def by_hand(rank, variables, config, folder):
    return subprocess.Popen([str(LOCKSTEP), "train", "-f", str(config), "--device", "cpu", "--output", str(folder), "--name", "hand"],
                            env={**os.environ, **variables, "RANK": str(rank), "LOCAL_RANK": str(rank)}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                            cwd=ROOT)


def test_five_variables_by_hand(tmp_path):
    config = write_config(tmp_path, trainer={"max_steps": 3})
    variables = {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    processes = [by_hand(rank, variables, config, tmp_path) for rank in range(2)]
    outputs = [process.communicate(timeout=120)[0] for process in processes]
    assert [process.returncode for process in processes] == [0, 0], outputs


def test_incomplete_variables_name_what_is_missing(tmp_path):
    done = call("train", "-f", str(write_config(tmp_path)), "--output", str(tmp_path), env={"RANK": "0", "WORLD_SIZE": "2"})
    assert done.returncode == 2 and "MASTER_ADDR" in done.stderr and "MASTER_PORT" in done.stderr


def test_runs_with_the_torch_of_python_alone(tmp_path):
    """The build copied elsewhere finds LibTorch through python3 on PATH."""
    import shutil

    copy = tmp_path / "elsewhere"
    (copy / "bin").mkdir(parents=True)
    for name in ("lockstep", "lockstep-worker"):
        shutil.copy(BUILD / "bin" / name, copy / "bin" / name)
    config = write_config(tmp_path, trainer={"max_steps": 2})
    environment = {**os.environ, "PATH": f"{ROOT / '.deps-test/bin'}:{os.environ['PATH']}"}
    environment.pop("LOCKSTEP_LIBTORCH", None)
    done = subprocess.run([str(copy / "bin/lockstep"), "train", "-f", str(config), "--device", "cpu", "--output", str(tmp_path), "--name", "run"],
                          capture_output=True, text=True, cwd=tmp_path, env=environment, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr


def test_tensorboard_events_are_sound(tmp_path):
    """Parses the event file by the format's own rules: length, checksum, protocol buffer."""
    import struct

    result = train(tmp_path, "run", write_config(tmp_path, trainer={"max_steps": 3}), "--ranks", "2", "monitor.tensorboard=true")
    data = next((result.folder / "tensorboard").glob("events.out.tfevents.*")).read_bytes()

    def crc32c(block):
        crc = 0xFFFFFFFF
        for byte in block:
            crc ^= byte
            for _ in range(8):
                crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
        return crc ^ 0xFFFFFFFF

    def masked(block):
        crc = crc32c(block)
        return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF

    scalars, at = [], 0
    while at < len(data):
        (length,) = struct.unpack_from("<Q", data, at)
        assert struct.unpack_from("<I", data, at + 8)[0] == masked(data[at : at + 8])
        event = data[at + 12 : at + 12 + length]
        assert struct.unpack_from("<I", data, at + 12 + length)[0] == masked(event)
        if b"train/loss" in event:
            scalars.append((event[10], struct.unpack("<f", event[-4:])[0]))
        at += 16 + length
    assert [step for step, _ in scalars] == [1, 2, 3]
    assert [value for _, value in scalars] == pytest.approx(result.losses(), rel=1e-6)
